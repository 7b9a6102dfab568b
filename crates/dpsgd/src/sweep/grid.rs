//! The runs of a sweep: every combination of the values that vary.

use std::path::Path;

use crate::Error;
use crate::settings::{RawSettings, file};

/// A setting that varies.
#[derive(Clone, Debug, PartialEq)]
pub struct Vary {
    /// Its name, that of the flag.
    pub name: String,
    /// Its values, as they were written.
    pub values: Vec<String>,
}

impl Vary {
    /// Reads `step=0.5,1,2`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let Some((name, values)) = text.split_once('=') else {
            return Err(Error::Refused(format!(
                "vary = {text}: expected NAME=VALUE,VALUE,…, as in step=0.5,1,2"
            )));
        };
        let values: Vec<String> = values
            .split(',')
            .map(|value| value.trim().to_string())
            .filter(|value| !value.is_empty())
            .collect();
        let name = name.trim().trim_start_matches('-').to_string();
        let mut sorted = values.clone();
        sorted.sort();
        sorted.dedup();
        if values.is_empty() || sorted.len() < values.len() {
            return Err(Error::Refused(format!("vary = {text}: give at least one value, and none twice")));
        }
        if ["seed", "data", "test", "private-test", "ledger", "data-set", "threads"].contains(&name.as_str())
        {
            return Err(Error::Refused(format!(
                "vary = {text}: {name} cannot vary in a sweep; use --seeds for seeds, and one sweep for each \
                 data set"
            )));
        }
        Ok(Self { name, values })
    }

    /// One of its values over the settings.
    fn set(&self, value: &str, below: &RawSettings) -> Result<RawSettings, Error> {
        // A number or a truth value, a word, or a list of one of these: what the setting takes.
        let word = toml::Value::String(value.to_string()).to_string();
        let spelled = [value.to_string(), word.clone(), format!("[{value}]"), format!("[{word}]")];
        let mut first = None;
        for spelled in spelled {
            let line = format!("{} = {spelled}\n", self.name);
            match file::parse::<RawSettings>(Path::new("--vary"), line.as_bytes()) {
                Ok(one) => return Ok(one.over(below)),
                Err(error) => first = first.or(Some(error)),
            }
        }
        let why = first.map(|error| error.to_string()).unwrap_or_default();
        Err(Error::Refused(format!("vary = {}={value}: {why}", self.name)))
    }
}

/// One run of a sweep, or one kind of try.
#[derive(Clone, Debug)]
pub struct Point {
    /// For people and for the name of its directory.
    pub name: String,
    /// What varies, with its value here.
    pub values: Vec<(String, String)>,
    /// Its settings.
    pub raw: RawSettings,
}

/// Every combination, the last setting varying fastest, each once or with every seed.
pub fn points(base: &RawSettings, vary: &[Vary], seeds: Option<u64>) -> Result<Vec<Point>, Error> {
    let mut points = vec![Point { name: String::new(), values: Vec::new(), raw: base.clone() }];
    for axis in vary {
        let mut finer = Vec::new();
        for point in &points {
            for value in &axis.values {
                let mut values = point.values.clone();
                values.push((axis.name.clone(), value.clone()));
                finer.push(Point { name: String::new(), values, raw: axis.set(value, &point.raw)? });
            }
        }
        points = finer;
    }
    if let Some(seeds) = seeds {
        let seeded = |point: &Point| {
            let point = point.clone();
            (1..=seeds).map(move |seed| {
                let mut values = point.values.clone();
                values.push(("seed".to_string(), seed.to_string()));
                Point { values, raw: RawSettings { seed: Some(seed), ..point.raw.clone() }, ..point.clone() }
            })
        };
        points = points.iter().flat_map(seeded).collect();
    }
    for point in &mut points {
        let parts: Vec<String> = point.values.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let name = if parts.is_empty() { "base".to_string() } else { parts.join(",") };
        // A path must not be built from what a value says.
        let plain = |c: char| c.is_alphanumeric() || "=,.-_+".contains(c);
        point.name = name.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vary(texts: &[&str]) -> Vec<Vary> {
        texts.iter().map(|text| Vary::parse(text).unwrap()).collect()
    }

    #[test]
    fn every_combination_with_every_seed() {
        let base = RawSettings { clip: Some(7.0), epochs: Some(3), ..RawSettings::default() };
        let found = points(&base, &vary(&["step=0.5,1", "inner=sgd,gradient"]), Some(2)).unwrap();
        assert_eq!(found.len(), 8);
        assert_eq!(found[0].name, "step=0.5,inner=sgd,seed=1");
        assert_eq!(found[7].name, "step=1,inner=gradient,seed=2");
        assert_eq!(
            (found[7].raw.step, found[7].raw.seed, found[7].raw.clip),
            (Some(1.0), Some(2), Some(7.0))
        );
        assert_eq!(points(&base, &[], None).unwrap()[0].name, "base");
    }

    #[test]
    fn a_value_replaces_what_says_the_same_in_another_way() {
        let base = RawSettings { target_epsilon: Some(3.0), ..RawSettings::default() };
        let found = points(&base, &vary(&["sigma=1,2", "sampling=poisson", "net=../x"]), None).unwrap();
        assert_eq!((found[1].raw.sigma, found[1].raw.target_epsilon), (Some(2.0), None));
        assert!(!found[0].name.contains('/'), "{}", found[0].name);
    }

    #[test]
    fn mistakes_are_named() {
        for wrong in ["step", "step=", "step=1,1", "seed=1,2", "data=a,b"] {
            assert!(Vary::parse(wrong).is_err(), "{wrong}");
        }
        let refused =
            |text: &str| points(&RawSettings::default(), &vary(&[text]), None).unwrap_err().to_string();
        assert!(refused("lr=1").contains("did you mean step"), "{}", refused("lr=1"));
        assert!(refused("step=large").contains("step=large"));
    }
}
