//! The data of a run: read, checked, and normalised by constants that are public or paid for.

use std::io::IsTerminal;
use std::path::Path;

use dpsgd_data::normalise::{Divisor, Normalisation, Private};
use dpsgd_data::table::{self, TestRows};
use dpsgd_data::{Dataset, Known, Split, known};
use dpsgd_train::Randomness;
use dpsgd_train::noise::exact;
use serde::{Deserialize, Serialize};

use super::mechanism::Size;
use super::progress::{tell, thousands};
use super::settings::{NormaliseName, TrainSettings};
use super::{algorithm, defaults, features};
use crate::Failure;
use crate::settings::{NeighboursName, number};

/// The data of a run.
pub struct Inputs {
    /// Training and test set.
    pub split: Split,
    /// Short, for the name of a directory.
    pub name: String,
    /// N.
    pub size: Size,
    /// The columns whose categories or range come from the private data, which no guarantee covers.
    pub uncovered: Vec<String>,
    known: Option<Known>,
}

/// The constants of (x − mean)/std that a run used, where they were released from its data.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Constants {
    /// For each numeric channel.
    pub mean: Vec<f32>,
    /// For each numeric channel.
    pub std: Vec<f32>,
}

fn refuse<T>(why: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Input(why.into()))
}

/// µ of what the preparation of the data releases: G_{gµ} for g differing samples, see
/// [`Split::normalise`].
pub fn releases(settings: &TrainSettings) -> Vec<f64> {
    if settings.normalise != Some(NormaliseName::Private) {
        return Vec::new();
    }
    vec![settings.normalise_mu.unwrap_or(defaults::NORMALISE_MU) * settings.differing.unwrap_or(1) as f64]
}

impl From<dpsgd_data::DataError> for Failure {
    fn from(error: dpsgd_data::DataError) -> Self {
        Failure::Input(error.to_string())
    }
}

impl Inputs {
    /// Reads the data that the settings name.
    pub fn load(settings: &TrainSettings) -> Result<Self, Failure> {
        let data = settings.data.as_deref().unwrap_or(defaults::DATA);
        if let Ok(known) = data.parse::<Known>() {
            for (name, given) in [("test", settings.test.is_some()), ("schema", settings.schema.is_some())] {
                if given {
                    return refuse(format!("{name}: only with a CSV file; {known} brings its own"));
                }
            }
            let split = known::load(known, settings.data_dir.as_deref())?;
            let size = Size { samples: split.train.len() as u64, public: true };
            return Ok(Self {
                split,
                name: known.name().to_string(),
                size,
                uncovered: Vec::new(),
                known: Some(known),
            });
        }
        let path = Path::new(data);
        if !path.is_file() {
            return refuse(format!(
                "data = {data}: neither mnist, fashion-mnist, cifar10 or adult nor a CSV file that exists"
            ));
        }
        let Some(schema) = &settings.schema else {
            return refuse(
                "schema: a CSV file needs one in --config: [schema.label] and a [[schema.column]] for each column, \
                 with a name and either range = [low, high] or categories = [\"…\"] (see dpsgd train --help)",
            );
        };
        let Some(test) = &settings.test else {
            return refuse("test: a CSV file needs a second one as --test, of public samples to measure on");
        };
        let same_file = || Some(path.canonicalize().ok()? == test.canonicalize().ok()?);
        let split = table::load(path, &TestRows::File(test.clone()), schema)?;
        // What is measured on the test set is published without noise.
        if same_file() == Some(true) || split.train == split.test {
            return refuse(format!(
                "test = {}: holds the same samples as data. What is measured on the test set is written down without noise, so \
                 it must be public: give samples that nobody has to protect",
                test.display()
            ));
        }
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let size = Size { samples: split.train.len() as u64, public: false };
        let uncovered = schema.uncovered().into_iter().map(str::to_string).collect();
        Ok(Self { split, name, size, uncovered, known: None })
    }

    /// Fills in how the data are normalised.
    pub fn settle(&self, given: &TrainSettings) -> Result<TrainSettings, Failure> {
        let mut settings = given.clone();
        settings.data = Some(given.data.clone().unwrap_or(defaults::DATA.to_string()));
        let published = self.known.is_some_and(|known| known.normalisation() != Normalisation::None);
        let usual = match given.features {
            None if published => NormaliseName::Public,
            _ => NormaliseName::None,
        };
        let normalise = *settings.normalise.get_or_insert(usual);
        if given.features.is_some() && normalise != NormaliseName::None {
            return refuse(
                "normalise: only none with --features, which are normalised image by image; the published constants and \
                 the private ones are those of pixels",
            );
        }
        if normalise == NormaliseName::Public && !published {
            return refuse(
                "normalise = public: no constants are published for a table; its columns already go from 0 to 1 by \
                 their ranges (none), or take private",
            );
        }
        if normalise != NormaliseName::Private {
            return match settings.normalise_mu {
                Some(mu) => refuse(format!("normalise-mu = {mu}: only with --normalise private")),
                None => Ok(settings),
            };
        }
        let mu = *settings.normalise_mu.get_or_insert(defaults::NORMALISE_MU);
        if !(mu > 0.0 && mu.is_finite()) {
            return refuse(format!("normalise-mu = {}: must be a number above 0", number(mu)));
        }
        Ok(settings)
    }

    /// Keeps one training sample, for its shape: the others would only cost the time of their features.
    pub fn leave_training_set(&mut self) -> Result<(), Failure> {
        self.split.train = self.split.train.part(0..1)?;
        Ok(())
    }

    /// One training sample as the network will see it, for its shape.
    pub fn sample(&self, settings: &TrainSettings) -> Result<Dataset, Failure> {
        let (train, test) = (self.split.train.part(0..1)?, self.split.test.part(0..1)?);
        Ok(match settings.features {
            Some(features) => features::of(&Split { train, test }, features, 1)?.train,
            None => train,
        })
    }

    /// Puts the features that the settings ask for in the place of the inputs.
    pub fn take_features(&mut self, settings: &TrainSettings) -> Result<(), Failure> {
        if let Some(features) = settings.features {
            if std::io::stderr().is_terminal() {
                let images = self.split.train.len() + self.split.test.len();
                tell(&format!("the features of {} images …", thousands(images as u64)));
            }
            let threads = settings.threads.unwrap_or_else(algorithm::all_cores);
            self.split = features::of(&self.split, features, threads)?;
        }
        Ok(())
    }

    /// Normalises both sets as the run did before a crash; nothing is drawn.
    pub fn normalise_again(
        &mut self,
        settings: &TrainSettings,
        before: Option<&Constants>,
    ) -> Result<(), Failure> {
        let normalisation = match (before, settings.normalise, self.known) {
            (Some(Constants { mean, std }), ..) => {
                Normalisation::Public { mean: mean.clone(), std: std.clone() }
            }
            // Nothing in the data is measured on a scale, see `Split::normalise`.
            (None, Some(NormaliseName::Private), _) => Normalisation::None,
            (None, Some(NormaliseName::Public), Some(known)) => known.normalisation(),
            _ => Normalisation::None,
        };
        self.split.normalise(&normalisation, &mut |_| 0.0)?;
        Ok(())
    }

    /// Normalises both sets; the constants, where they were released from the private data.
    ///
    /// # Guarantee
    /// Makes at most one release, of the µ in `settings`. A resumed run makes none: it takes the constants
    /// of its start by [`normalise_again`](Self::normalise_again).
    pub fn normalise(
        &mut self,
        settings: &TrainSettings,
        randomness: &Randomness,
    ) -> Result<Option<Constants>, Failure> {
        let normalisation = match (settings.normalise, self.known) {
            (Some(NormaliseName::Public), Some(known)) => known.normalisation(),
            (Some(NormaliseName::Private), _) => Normalisation::Private(Private {
                mu: settings.normalise_mu.unwrap_or(defaults::NORMALISE_MU),
                divisor: match (settings.neighbours, settings.groups, settings.rate) {
                    // m/p: both are public, and their quotient is about N.
                    (Some(NeighboursName::AddRemove), Some(groups), Some(rate)) => {
                        Divisor::Expected(groups as f64 / rate)
                    }
                    _ => Divisor::Samples,
                },
            }),
            _ => Normalisation::None,
        };
        let mut drawn = 0;
        let release = self.split.normalise(&normalisation, &mut |deviation| {
            drawn += 1;
            exact::before_training(randomness, drawn, deviation)
        })?;
        Ok(release.map(|release| Constants { mean: release.mean().to_vec(), std: release.std().to_vec() }))
    }
}
