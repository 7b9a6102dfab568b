//! What a run would leak, for the sliders.

use crate::{RawSettings, Settings};
use dpsgd_privacy::budget::Budget;
use dpsgd_privacy::{Account, Adversary};
use dpsgd_report::chart::PALETTE;
use dpsgd_report::curve::{CurveRun, Tradeoff};
use dpsgd_report::html::Figure;
use dpsgd_report::rounding::up;
use dpsgd_report::text::subscript;
use serde_json::{Map, Value, json};

use super::{pairs, refused};

/// The settings that the page may give: those of the mechanism, and no file.
const ALLOWED: [&str; 13] = [
    "samples",
    "groups",
    "group-size",
    "epochs",
    "rounds",
    "sigma",
    "noise-multiplier",
    "sampling",
    "rate",
    "rounds-per-epoch",
    "neighbours",
    "differing",
    "delta",
];

/// The most settings that are overlaid.
const MOST: usize = 6;

/// The plots of the trade-off functions.
const SQUARE: (f64, f64) = (420.0, 380.0);

/// Settings from a query: `samples=60000&sigma=1`.
fn settings(query: &str) -> Result<(RawSettings, Settings), String> {
    let mut map = Map::new();
    for (name, value) in pairs(query) {
        if !ALLOWED.contains(&name.as_str()) {
            return Err(format!("{name}: not a setting of this page"));
        }
        let number = value.parse::<u64>().map(Value::from).or_else(|_| value.parse::<f64>().map(Value::from));
        map.insert(name, number.unwrap_or(Value::String(value)));
    }
    let raw: RawSettings = serde_json::from_value(Value::Object(map)).map_err(|error| error.to_string())?;
    let settings = raw.resolve().map_err(|error| error.to_string())?;
    Ok((raw, settings))
}

/// The queries of all settings that the page shows.
fn queries(parameters: impl Iterator<Item = (String, String)>) -> Vec<String> {
    parameters.filter(|(name, _)| name == "run").map(|(_, query)| query).take(MOST).collect()
}

/// ε of each run, and nothing else: what a moving slider waits for.
pub fn epsilons(parameters: impl Iterator<Item = (String, String)>) -> Value {
    let of_run = |query: String| {
        let settings = settings(&query)?.1;
        let found = [Adversary::A0, Adversary::A1].into_iter().filter_map(|adversary| {
            let budget = Budget { adversary, ..settings.budget };
            let epsilon = budget.spent(&settings.mechanism, settings.mechanism.rounds()).ok()?;
            Some(json!({ "adversary": subscript(adversary), "epsilon": up(epsilon, 4) }))
        });
        Ok::<_, String>(json!({ "guarantees": found.collect::<Vec<_>>() }))
    };
    let runs: Vec<Value> =
        queries(parameters).into_iter().map(|query| of_run(query).unwrap_or_else(refused)).collect();
    json!({ "runs": runs })
}

/// The guarantees of each run, and its command.
pub fn numbers(parameters: impl Iterator<Item = (String, String)>) -> Value {
    let of_run = |query: String| {
        let (raw, settings) = settings(&query)?;
        let account = Account::of(&settings.mechanism, settings.question, &settings.alphas)
            .map_err(|error| error.to_string())?;
        let guarantees: Vec<Value> = account
            .guarantees
            .iter()
            .rev()
            .map(|given| {
                let detected: Vec<Value> = settings
                    .alphas
                    .iter()
                    .map(|alpha| json!({ "alpha": alpha, "detected": dpsgd_report::detected(given, *alpha) }))
                    .collect();
                json!({
                    "adversary": subscript(given.adversary),
                    "epsilon": up(given.answer.upper, 4),
                    "mu": given.mu.as_ref().map(|(mu, _)| up(mu.upper, 4)).ok(),
                    "detected": detected,
                })
            })
            .collect();
        let refused: Vec<String> = account
            .refused
            .iter()
            .map(|(adversary, why)| format!("{}: {why}", subscript(*adversary)))
            .collect();
        Ok::<_, String>(json!({
            "command": format!("dpsgd account{}", raw.to_flags(|_| true).map_err(|error| error.to_string())?),
            "rounds": settings.mechanism.rounds(),
            "guarantees": guarantees,
            "refused": refused,
            "warning": settings.delta_warning(),
        }))
    };
    let runs: Vec<Value> =
        queries(parameters).into_iter().map(|query| of_run(query).unwrap_or_else(refused)).collect();
    json!({ "runs": runs })
}

/// The trade-off functions of all runs that can be drawn.
pub fn curves(parameters: impl Iterator<Item = (String, String)>) -> Value {
    let queries = queries(parameters);
    let known: Vec<(usize, Settings)> =
        queries.iter().enumerate().filter_map(|(i, query)| Some((i, settings(query).ok()?.1))).collect();
    let several = known.len() > 1;
    let runs: Vec<CurveRun> = known
        .iter()
        .map(|(i, settings)| CurveRun {
            name: if several { format!("setting {}", i + 1) } else { String::new() },
            mechanism: &settings.mechanism,
            question: settings.question,
            alphas: &settings.alphas,
        })
        .collect();
    if runs.is_empty() {
        return refused("no setting can be drawn");
    }
    match Tradeoff::of(&runs) {
        Ok(mut drawn) => {
            (drawn.linear.subtitle, drawn.logarithmic.subtitle) = (None, None);
            if several {
                // The page names the colours beside the settings, where there is room for them.
                drawn.linear.series.iter_mut().for_each(|series| series.label.clear());
            }
            let colours: Vec<Option<&str>> = (0..queries.len())
                .map(|i| {
                    known.iter().position(|(place, _)| *place == i).map(|at| PALETTE[at % PALETTE.len()])
                })
                .collect();
            let charts = [&drawn.linear, &drawn.logarithmic];
            let svgs: Vec<String> = charts.map(|chart| Figure::new(chart, SQUARE, "").svg).to_vec();
            json!({ "svgs": svgs, "colours": if several { colours } else { Vec::new() } })
        }
        Err(error) => refused(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(query: &str) -> Value {
        numbers([("run".to_string(), query.to_string())].into_iter())["runs"][0].clone()
    }

    #[test]
    fn the_papers_setting_is_what_the_account_says() {
        let found = asked("samples=60000&groups=64&epochs=100&sigma=2");
        assert_eq!(found["guarantees"][0]["adversary"], "A₀");
        assert_eq!(found["guarantees"][0]["epsilon"], "0.7447");
        let command = found["command"].as_str().unwrap();
        assert!(command.starts_with("dpsgd account ") && command.contains("--sigma 2"), "{command}");
    }

    #[test]
    fn what_is_not_a_number_of_the_mechanism_is_refused() {
        for query in ["data=/etc/passwd", "sigma=x", "sigma=-1", "samples=0", "nonsense", "sampling=magic"] {
            assert!(asked(query)["error"].is_string(), "{query}: {}", asked(query));
        }
    }
}
