//! The data of a run: read, checked, and normalised with constants that are public or paid for.

use std::path::Path;

use dpsgd_data::features::cache::Cache;
use dpsgd_data::file::Public;
use dpsgd_data::normalise::{Divisor, Normalisation, Private};
use dpsgd_data::rows::{self, Repeated};
use dpsgd_data::{Dataset, Known, Split, features, known};
use dpsgd_privacy::mechanism::Neighbours;
use dpsgd_train::Randomness;
use dpsgd_train::noise::exact;
use serde::{Deserialize, Serialize};

use crate::settings::{DataSettings, Population, Preparation, RawSettings, Settings, defaults};
use crate::shared_ledger::NONE;
use crate::{Error, Observer};

/// The data of a run.
pub struct RunData {
    /// Training and test set.
    pub split: Split,
    /// Short, for the name of a directory.
    pub name: String,
    /// N.
    pub population: Population,
    /// The columns whose categories or range come from the private data, which no guarantee covers.
    pub uncovered: Vec<String>,
    /// What the test set is.
    pub tested: Tested,
    /// How far the test set of a table repeats its training set.
    repeated: Option<Repeated>,
}

/// The most test samples that may occur in training beyond what chance explains, as a share of all.
const MOST_REPEATED: f64 = 0.25;

/// What a model is measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tested {
    /// Public samples, after every epoch and without noise.
    Publicly,
    /// Private samples, once, with noise.
    Privately,
    /// Nothing. The test set is one training sample, for its shape; no model ever sees it as a test.
    Never,
}

/// The constants of (x − mean)/std that a run released from its data.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Constants {
    /// For each numeric channel.
    pub mean: Vec<f32>,
    /// For each numeric channel.
    pub std: Vec<f32>,
}

fn refuse<T>(why: impl Into<String>) -> Result<T, Error> {
    Err(Error::Refused(why.into()))
}

impl RunData {
    /// Reads the data that the settings name.
    pub fn load(raw: &RawSettings) -> Result<Self, Error> {
        let data = raw.data.as_deref().unwrap_or(defaults::DATA);
        match data.parse::<Known>() {
            Ok(known) => Self::known(known, raw.data_dir.as_deref()),
            Err(_) => Self::own(data, raw),
        }
    }

    fn known(known: Known, directory: Option<&Path>) -> Result<Self, Error> {
        let split = known::load(known, directory)?;
        Ok(Self {
            name: known.name().to_string(),
            population: Population::measured(split.train.len() as u64, true),
            uncovered: Vec::new(),
            tested: Tested::Publicly,
            repeated: None,
            split,
        })
    }

    /// Data of one's own: a table, arrays, or a folder of images.
    fn own(data: &str, raw: &RawSettings) -> Result<Self, Error> {
        let path = Path::new(data);
        if !path.exists() {
            return refuse(format!(
                "data = {data}: neither mnist, fashion-mnist, cifar10 or adult nor a file or folder that exists"
            ));
        }
        let declared = raw.declared()?;
        let public = Public { schema: raw.schema.as_ref(), declared: &declared };
        let test = raw.test.as_deref().or(raw.private_test.as_deref());
        let (split, tested) = match public.load(path, test)? {
            (train, Some(test)) if raw.test.is_some() => (Split { train, test }, Tested::Publicly),
            (train, Some(test)) => (Split { train, test }, Tested::Privately),
            (train, None) => (Split { test: train.part(0..1)?, train }, Tested::Never),
        };
        let repeated = match (tested, &raw.test) {
            (Tested::Publicly, Some(test)) => {
                Some(refuse_training_samples(&split.train, &split.test, &test.display().to_string())?)
            }
            (Tested::Publicly, None) | (Tested::Privately | Tested::Never, _) => None,
        };
        Ok(Self {
            name: path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default(),
            population: Population::measured(split.train.len() as u64, false),
            uncovered: raw
                .schema
                .iter()
                .flat_map(|schema| schema.uncovered().into_iter().map(str::to_string))
                .collect(),
            tested,
            repeated,
            split,
        })
    }

    /// What the owner of the data should know: test samples that also occur in training. It depends on the
    /// private data.
    pub fn warning(&self) -> Option<String> {
        let repeated = self.repeated.filter(|repeated| repeated.samples > 0)?;
        Some(format!(
            "{} of {} test samples also occur in the training data; what is measured on the test set is \
             published without noise, so make sure that these are not private (this number is a function of the \
             private data: it is for you, not for publishing)",
            repeated.samples,
            self.split.test.len()
        ))
    }

    /// Samples that a program holds in memory, and public samples to measure on, if there are any.
    pub fn in_memory(name: impl Into<String>, train: Dataset, test: Option<Dataset>) -> Result<Self, Error> {
        let name = name.into();
        let (split, tested, repeated) = match test {
            Some(test) => {
                let repeated = refuse_training_samples(&train, &test, "the samples in memory")?;
                (Split { train, test }, Tested::Publicly, Some(repeated))
            }
            None => (Split { test: train.part(0..1)?, train }, Tested::Never, None),
        };
        Ok(Self {
            name,
            population: Population::measured(split.train.len() as u64, false),
            uncovered: Vec::new(),
            tested,
            repeated,
            split,
        })
    }

    /// Keeps a part of the training samples: one client's.
    pub fn keep(&mut self, range: std::ops::Range<usize>) -> Result<(), Error> {
        self.split.train = self.split.train.part(range)?;
        self.population = Population::measured(self.split.train.len() as u64, self.population.public);
        Ok(())
    }

    /// Multiplies the losses of the classes by public constants.
    pub fn weigh(&mut self, weights: &[f32]) -> Result<(), Error> {
        if !weights.is_empty() {
            for set in [&mut self.split.train, &mut self.split.test] {
                *set = set.clone().with_class_weights(weights)?;
            }
        }
        Ok(())
    }

    /// One training sample as the network will see it, for its shape.
    pub fn sample(&self, settings: &DataSettings) -> Result<Dataset, Error> {
        let (train, test) = (self.split.train.part(0..1)?, self.split.test.part(0..1)?);
        Ok(match settings.features {
            Some(wanted) => features::of(&Split { train, test }, wanted, 1)?.train,
            None => train,
        })
    }

    /// Replaces the inputs by the features that the settings ask for.
    ///
    /// # Guarantee
    /// Features of private samples are written to disk only where the settings name the directory.
    pub fn take_features(&mut self, settings: &Settings, observer: &mut dyn Observer) -> Result<(), Error> {
        let Some(wanted) = settings.data.features else { return Ok(()) };
        let cache = match &settings.data.features_cache {
            Some(path) if path == Path::new(NONE) => None,
            Some(path) => Some(Cache::new(path)),
            // Published samples hide nothing.
            None if self.population.public => Cache::usual(),
            None => None,
        };
        let images = (self.split.train.len() + self.split.test.len()) as u64;
        observer.computing_features(images, cache.as_ref().map(Cache::directory));
        self.split = match cache {
            Some(cache) => {
                let taken = features::cached(&self.split, wanted, settings.threads, &cache)?;
                if let Some(why) = taken.not_kept {
                    observer.warns(&format!(
                        "the features could not be kept and will be computed again ({why}); --features-cache \
                         names another directory, or none"
                    ));
                }
                taken.split
            }
            None => features::of(&self.split, wanted, settings.threads)?,
        };
        Ok(())
    }

    /// Normalises both sets as the run did when it began; nothing is drawn.
    pub fn normalise_again(
        &mut self,
        settings: &DataSettings,
        before: Option<&Constants>,
    ) -> Result<(), Error> {
        let normalisation = match before {
            Some(Constants { mean, std }) => Normalisation::Public { mean: mean.clone(), std: std.clone() },
            // Without constants, nothing in the data is measured on a scale: see `Split::normalise`.
            None => settings.public_normalisation(),
        };
        self.split.normalise(&normalisation, &mut |_| 0.0)?;
        Ok(())
    }

    /// Normalises both sets; the constants, where they were released from the private data.
    ///
    /// # Guarantee
    /// Makes at most one release, of the µ in `settings`. A resumed run makes none: it takes the constants of
    /// its start by [`normalise_again`](Self::normalise_again).
    pub fn normalise(
        &mut self,
        settings: &Settings,
        randomness: &Randomness,
    ) -> Result<Option<Constants>, Error> {
        let normalisation = match settings.data.preparation {
            Preparation::Private { mu } => {
                Normalisation::Private(Private { mu, divisor: divisor(settings)? })
            }
            Preparation::Public | Preparation::Nothing => settings.data.public_normalisation(),
        };
        let mut drawn = 0;
        let release = self.split.normalise(&normalisation, &mut |deviation| {
            drawn += 1;
            exact::before_training(randomness, drawn, deviation)
        })?;
        Ok(release.map(|release| Constants { mean: release.mean().to_vec(), std: release.std().to_vec() }))
    }
}

/// Refuses a public test set of which a large share occurs in training.
///
/// # Guarantee
/// What is measured on the test set is published without noise, so no private sample may be in it. Rows are
/// compared by value, in any order; a set that is the training set itself is always refused.
fn refuse_training_samples(train: &Dataset, test: &Dataset, named: &str) -> Result<Repeated, Error> {
    let repeated = rows::repeated(train, test);
    if train == test || repeated.unexplained() > MOST_REPEATED {
        return refuse(format!(
            "test = {named}: holds the same samples as data ({} of {} occur there). What is measured on the test \
             set is written down without noise, so it must be public: give samples that nobody has to protect, \
             or --private-test",
            repeated.samples,
            test.len()
        ));
    }
    Ok(repeated)
}

/// What the noised sums of a private normalisation are divided by: never a private N.
fn divisor(settings: &Settings) -> Result<Divisor, Error> {
    match (settings.mechanism.neighbours(), settings.expected_samples()) {
        (Neighbours::Substitute, _) => Ok(Divisor::Samples),
        // m/p or m·B: public constants that make about N.
        (Neighbours::AddRemove, Some(expected)) => Ok(Divisor::Expected(expected)),
        (Neighbours::AddRemove, None) => refuse(
            "normalise = private: add-remove needs, in the first phase, poisson sampling with a rate and groups, \
             or allocate sampling with rounds-per-epoch and groups",
        ),
    }
}

impl From<features::FeaturesError> for Error {
    fn from(error: features::FeaturesError) -> Self {
        match error {
            features::FeaturesError::Data(error) => error.into(),
            other => Error::Refused(other.to_string()),
        }
    }
}
