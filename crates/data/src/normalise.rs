//! Normalisation: (x − mean)/std for each channel, with constants that are public or paid for.

use dpsgd_privacy::mechanism::Neighbours;
use serde::{Deserialize, Serialize};

use crate::dataset::{Dataset, Split};
use crate::error::{DataError, setting};
use crate::release::{self, Release};

/// Where the constants of (x − mean)/std come from. x lies between 0 and 1: a byte over 255, a table's value
/// within its public range, or a feature within ±[`REACH`](crate::dataset::REACH).
///
/// There is one pair for each numeric channel; the features of categorical columns are 0 or 1 and stay that
/// way. In a table, a missing number is served as the mean, and one far from it as [`LIMIT`](crate::LIMIT)
/// standard deviations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Normalisation {
    /// Inputs stay between 0 and 1, features as they are. Releases nothing.
    None,
    /// Constants known without looking at the data. Releases nothing, **provided they are public**:
    /// constants computed from the private data belong to `Private`.
    Public {
        /// The means.
        mean: Vec<f32>,
        /// The standard deviations.
        std: Vec<f32>,
    },
    /// Constants from the training data, with noise; see [`Release`] for the guarantee.
    Private(Private),
}

/// How the private constants are released.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Private {
    /// µ of the release for one differing sample.
    pub mu: f64,
    /// The neighbour relation of the run, with what the sums are divided by.
    pub divisor: Divisor,
}

/// What the noised sums are divided by, which depends on the neighbour relation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Divisor {
    /// Neighbours by substitution: N is the same for all neighbours and may be used.
    Samples,
    /// Neighbours by adding and removing: N is private; this public count replaces it.
    Expected(f64),
}

impl Divisor {
    /// The neighbour relation it belongs to.
    pub fn neighbours(self) -> Neighbours {
        match self {
            Divisor::Samples => Neighbours::Substitute,
            Divisor::Expected(_) => Neighbours::AddRemove,
        }
    }
}

impl Split {
    /// Serves normalised inputs from now on, the test set with the same constants as the training set.
    /// A second call replaces the first.
    ///
    /// `noise` is the source of independent Gaussians with a given deviation, rounded to whole numbers; only
    /// `Private` draws from it.
    ///
    /// # Guarantee
    ///
    /// `None` and `Public` release nothing about the samples. `Private` is G_µ-DP for one differing sample,
    /// and G_{gµ} for g of them: the returned [`Release::mu`]`(1)` belongs in `RunConfig::releases`. Each
    /// call with `Private` is a separate release.
    pub fn normalise(
        &mut self,
        normalisation: &Normalisation,
        noise: &mut dyn FnMut(f64) -> f64,
    ) -> Result<Option<Release>, DataError> {
        let channels = self.train.numeric().iter().filter(|numeric| **numeric).count();
        let release = match normalisation {
            Normalisation::None => {
                let (mean, std) = self.train.plain();
                self.standardise(&vec![mean; channels], &vec![std; channels], false);
                return Ok(None);
            }
            Normalisation::Public { mean, std } => {
                check(mean, std, channels)?;
                self.standardise(mean, std, true);
                return Ok(None);
            }
            // No channel is numeric, so there is nothing to release.
            Normalisation::Private(_) if channels == 0 => return Ok(None),
            Normalisation::Private(private) => release::release(&self.train, private, noise)?,
        };
        self.standardise(release.mean(), release.std(), true);
        Ok(Some(release))
    }

    fn standardise(&mut self, mean: &[f32], std: &[f32], normalised: bool) {
        for set in [&mut self.train, &mut self.test] {
            let (mean, std) = spread(set, mean, std);
            set.standardise(&mean, &std);
            set.set_normalised(normalised);
        }
    }
}

/// The constants of all channels, from those of the numeric ones.
fn spread(set: &Dataset, mean: &[f32], std: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let mut constants = mean.iter().copied().zip(std.iter().copied());
    set.numeric()
        .iter()
        .map(|numeric| if *numeric { constants.next().unwrap_or((0.0, 1.0)) } else { (0.0, 1.0) })
        .unzip()
}

fn check(mean: &[f32], std: &[f32], channels: usize) -> Result<(), DataError> {
    if mean.len() != channels || std.len() != channels {
        return setting(
            "normalisation",
            format!("{} means and {} deviations", mean.len(), std.len()),
            format!("{channels} of each"),
            "there is one pair for each numeric channel",
        );
    }
    if let Some(mean) = mean.iter().find(|mean| !mean.is_finite()) {
        return setting("mean", mean, "finite", "every input is shifted by it");
    }
    // Smaller deviations are mistakes, and the quotient must stay finite.
    if let Some(std) = std.iter().find(|std| !(std.is_finite() && **std >= 1e-6)) {
        return setting("std", std, "finite and at least 1e-6", "every input is divided by it");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{Inputs, Targets};

    fn split() -> Split {
        let set = |values: Vec<f32>| {
            let targets = Targets::Values(vec![0.0; values.len() / 3]);
            Dataset::new(Inputs::Floats(values), targets, [1, 1, 3])
                .unwrap()
                .with_numeric(vec![true, false, true])
        };
        Split { train: set(vec![0.5, 1.0, 0.25, 0.0, 0.0, 1.0]), test: set(vec![1.0, 1.0, 0.75]) }
    }

    fn no_noise(_: f64) -> f64 {
        panic!("nothing may be drawn")
    }

    fn served(set: &Dataset, index: usize) -> Vec<f32> {
        let mut out = vec![0.0; set.input_len()];
        set.copy_input(index, &mut out);
        out
    }

    #[test]
    fn public_constants_leave_categories_alone_and_can_be_replaced() {
        let mut split = split();
        let public = Normalisation::Public { mean: vec![0.5, 0.25], std: vec![0.5, 0.25] };
        for _ in 0..2 {
            assert_eq!(split.normalise(&public, &mut no_noise).unwrap(), None);
            assert_eq!(served(&split.train, 0), [0.0, 1.0, 0.0]);
            assert_eq!(served(&split.test, 0), [1.0, 1.0, 2.0]);
        }
        split.normalise(&Normalisation::None, &mut no_noise).unwrap();
        assert_eq!(served(&split.test, 0), [1.0, 1.0, 0.75]);
    }

    #[test]
    fn released_constants_can_be_written_down_and_used_again_for_nothing() {
        let mut first = split();
        let private = Normalisation::Private(Private { mu: 1.0, divisor: Divisor::Samples });
        let release = first.normalise(&private, &mut |deviation| (0.7 * deviation).round()).unwrap().unwrap();
        let text = toml::to_string(&release.constants()).unwrap();
        let mut again = split();
        assert_eq!(again.normalise(&toml::from_str(&text).unwrap(), &mut no_noise).unwrap(), None);
        assert_eq!(again, first);
        assert_ne!(again, split());
    }

    #[test]
    fn without_numeric_channels_nothing_is_released() {
        let mut split = split();
        for set in [&mut split.train, &mut split.test] {
            *set = set.clone().with_numeric(vec![false; 3]);
        }
        let private = Normalisation::Private(Private { mu: 1.0, divisor: Divisor::Samples });
        assert_eq!(split.normalise(&private, &mut no_noise).unwrap(), None);
    }

    #[test]
    fn wrong_constants_are_refused() {
        let refused = |mean: &[f32], std: &[f32]| {
            let public = Normalisation::Public { mean: mean.to_vec(), std: std.to_vec() };
            split().normalise(&public, &mut no_noise).unwrap_err().to_string()
        };
        assert!(refused(&[0.5], &[0.5]).contains("2 of each"));
        assert!(refused(&[0.5, f32::NAN], &[0.5, 1.0]).starts_with("mean = NaN"));
        assert!(refused(&[0.5, 0.5], &[0.5, 0.0]).starts_with("std = 0"));
        assert!(refused(&[0.5, 0.5], &[f32::INFINITY, 1.0]).starts_with("std = inf"));
    }
}
