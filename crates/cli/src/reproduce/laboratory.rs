//! Where experiments are run: the data, the threads, what is saved, and what a person sees meanwhile.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Instant;

use dpsgd_audit::probe::Permit;
use dpsgd_data::{Known, Split, known};
use dpsgd_engine::Network;
use dpsgd_privacy::mechanism::Mechanism;
use dpsgd_train::native::Native;
use dpsgd_train::{Plan, Purpose, Randomness, Trainer, TrainerState};

use super::altered::Altered;
use super::experiment::{Experiment, Noise, Part};
use super::progress::Progress;
use super::stated::DELTA;
use super::store::{Outcome, Point, Store};
use crate::Failure;
use crate::settings::AdversaryName;
use crate::train::mechanism::{Settled, Size, settled};
use crate::train::samples::Labelled;
use crate::train::settings::{FeaturesName, NoiseName, TrainSettings};
use crate::train::{algorithm, evaluation, features, net};

/// Seconds between two checkpoints of a run, at least.
const BETWEEN_SAVES: f64 = 20.0;

/// Which samples, and whether their features.
type Samples = (Known, Part, Option<FeaturesName>);

/// Where experiments are run.
pub struct Laboratory {
    store: Store,
    data_dir: Option<PathBuf>,
    threads: Option<usize>,
    /// Public samples, normalised by published constants, or their features.
    loaded: Vec<(Samples, Split)>,
    /// What may be computed: experiments whose names begin with one of these, or all if there are none.
    /// What may be computed begins with one of these, if there are any, and whether something did.
    only: Vec<(String, Cell<bool>)>,
    /// Whether nothing at all may be computed for now.
    pub frozen: bool,
    /// What a person sees.
    pub progress: Progress,
}

/// The trainer or what it is compared with.
enum Runner<'m> {
    Trainer(Box<Trainer<'m, Native<'m>>>),
    Altered(Box<Altered<'m>>),
}

impl Runner<'_> {
    /// Does an epoch; η of its last round. Nothing is charged: an experiment has a seed and is not private, and its data are public.
    fn epoch(&mut self) -> Result<f64, Failure> {
        match self {
            Runner::Trainer(trainer) => loop {
                let round =
                    trainer.round(&mut Permit).map_err(|error| Failure::Machine(error.to_string()))?;
                if round.ends_epoch {
                    return Ok(round.eta);
                }
            },
            Runner::Altered(altered) => loop {
                if let Some(eta) = altered.round() {
                    return Ok(eta);
                }
            },
        }
    }

    fn saw_accuracy(&mut self, accuracy: f64) {
        match self {
            Runner::Trainer(trainer) => trainer.saw_accuracy(accuracy),
            Runner::Altered(altered) => altered.saw_accuracy(accuracy),
        }
    }

    fn state(&self) -> &TrainerState {
        match self {
            Runner::Trainer(trainer) => trainer.state(),
            Runner::Altered(altered) => altered.state(),
        }
    }
}

/// The mechanism and the plan of an experiment over so many epochs of N samples.
fn planned(
    experiment: &Experiment,
    samples: u64,
    epochs: u64,
    threads: Option<usize>,
) -> Result<Plan, Failure> {
    let mut given = experiment.settings.clone();
    given.epochs = Some(epochs);
    given.threads = threads;
    // Seeded anyway, and what is added by either kind differs by a thousandth.
    given.noise = given.noise.or(Some(NoiseName::Fast));
    // A baseline has neither noise nor C, but draws its batches as the mechanism does.
    given.sigma = given.sigma.or(Some(1.0));
    given.clip = given.clip.or(Some(1.0));
    let Settled { settings, run, .. } = settled(&given, Size { samples, public: true }, &[])?;
    Ok(algorithm::planned(&settings, &run.mechanism)?.1)
}

/// The mechanism that accounts for so many epochs of an experiment on N samples.
pub fn mechanism(experiment: &Experiment, samples: u64, epochs: u64) -> Result<Mechanism, Failure> {
    Ok(planned(experiment, samples, epochs, Some(1))?.mechanism().clone())
}

/// The experiment with the smallest σ whose ε against A₀ over so many epochs is at most the given one.
pub fn calibrated(mut experiment: Experiment, epochs: u64, epsilon: f64) -> Result<Experiment, Failure> {
    let given = TrainSettings {
        epochs: Some(epochs),
        sigma: None,
        target_epsilon: Some(epsilon),
        delta: Some(DELTA),
        adversary: Some(AdversaryName::A0),
        ..experiment.settings.clone()
    };
    let size = Size { samples: experiment.samples(), public: true };
    experiment.settings.sigma = settled(&given, size, &[])?.settings.sigma;
    Ok(experiment)
}

/// The draws of an experiment. They are those of an uninterrupted run: with a seed nothing is private, and every bit is
/// the same.
fn randomness(experiment: &Experiment) -> Randomness {
    Randomness::from_seed(experiment.settings.seed.unwrap_or(0), 0)
}

fn initial(network: &Network, randomness: &Randomness) -> Vec<f32> {
    let mut stream = randomness.stream(Purpose::Initialisation, 0);
    network.initial(|| stream.unit() as f32)
}

impl Laboratory {
    /// With its outcomes in a directory.
    pub fn new(
        store: PathBuf,
        data_dir: Option<PathBuf>,
        threads: Option<usize>,
        only: Vec<String>,
        quiet: bool,
    ) -> Result<Self, Failure> {
        Ok(Self {
            store: Store::open(store)?,
            data_dir,
            threads,
            loaded: Vec::new(),
            only: only.into_iter().map(|name| (name, Cell::new(false))).collect(),
            frozen: false,
            progress: Progress::new(quiet),
        })
    }

    /// The place of the samples of an experiment in `loaded`.
    fn load(&mut self, experiment: &Experiment) -> Result<usize, Failure> {
        let (data, part, features) = (experiment.data(), experiment.part, experiment.settings.features);
        if let Some(found) = self.loaded.iter().position(|(what, ..)| *what == (data, part, features)) {
            return Ok(found);
        }
        let Split { train, test } = known::load(data, self.data_dir.as_deref())?;
        let samples = train.len();
        let mut split = match part {
            Part::All => Split { train, test },
            Part::First(first) => Split { train: train.part(0..first as usize)?, test },
            Part::HeldOut { first, last } => {
                let start = samples.saturating_sub(last as usize);
                if (first as usize) > start {
                    return Err(Failure::Input(format!(
                        "{data}: {first} samples to learn from and {last} held out are more than there are"
                    )));
                }
                Split { train: train.part(0..first as usize)?, test: train.part(start..samples)? }
            }
        };
        match features {
            Some(features) => {
                // Those of CIFAR-10 are 4 GB: what was there before goes first.
                self.loaded.clear();
                let threads = self.threads.unwrap_or_else(algorithm::all_cores);
                split = features::of(&split, features, threads)?;
            }
            None => {
                split.normalise(&data.normalisation(), &mut |_| 0.0)?;
            }
        }
        // Two parts of a set at a time are enough, and CIFAR-10 is large.
        if self.loaded.len() >= 4 {
            self.loaded.remove(0);
        }
        self.loaded.push(((data, part, features), split));
        Ok(self.loaded.len() - 1)
    }

    /// Whether an experiment may be computed.
    pub fn may(&self, name: &str) -> bool {
        let mut named = self.only.is_empty();
        for (_, found) in self.only.iter().filter(|(only, _)| name.starts_with(only.as_str())) {
            named = true;
            found.set(true);
        }
        named && !self.frozen
    }

    /// What was asked for and is no experiment.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        self.only.iter().filter(|(_, found)| !found.get()).map(|(only, _)| only.as_str())
    }

    /// The outcomes.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Brings an experiment to so many epochs, from where it stands. An experiment that may not be computed is returned
    /// as far as it is, if it was ever begun.
    pub fn run(
        &mut self,
        name: &str,
        experiment: &Experiment,
        epochs: u64,
    ) -> Result<Option<Outcome>, Failure> {
        let found = self.store.outcome(name, experiment)?;
        let enough = found.as_ref().is_some_and(|found| found.epochs() >= epochs);
        if !self.may(name) || enough {
            self.progress.done(experiment, epochs);
            return Ok(found);
        }
        self.advance(name, experiment, epochs, true).map(Some)
    }

    /// The last epoch of a short experiment that is not worth saving.
    pub fn measure(&mut self, name: &str, experiment: &Experiment, epochs: u64) -> Result<Point, Failure> {
        let outcome = self.advance(name, experiment, epochs, false)?;
        outcome.curve.last().copied().ok_or_else(|| Failure::Input("0 epochs measure nothing".into()))
    }

    /// The network of an experiment before its first round.
    pub fn untrained(&mut self, experiment: &Experiment) -> Result<Point, Failure> {
        let place = self.load(experiment)?;
        let (_, Split { train, test }) = &self.loaded[place];
        let (_, spec) = net::named(&experiment.settings, train)?;
        let network = net::checked(&spec, train)?;
        let weights = initial(&network, &randomness(experiment));
        let threads = self.threads.unwrap_or_else(algorithm::all_cores);
        let seen = evaluation::evaluate(&network, test, &weights, 1, f64::INFINITY, threads);
        Ok(Point::of(&seen, 0.0, 0.0))
    }

    fn advance(
        &mut self,
        name: &str,
        experiment: &Experiment,
        epochs: u64,
        kept: bool,
    ) -> Result<Outcome, Failure> {
        let data = experiment.data();
        let place = self.load(experiment)?;
        let (_, Split { train, test }) = &self.loaded[place];
        let plan = planned(experiment, train.len() as u64, epochs, self.threads)?;
        let threads = plan.threads();
        let (_, spec) = net::named(&experiment.settings, train)?;
        let network = net::checked(&spec, train)?;
        let samples = Labelled(train);
        let group_size = experiment.settings.group_size.unwrap_or(1);
        let model = Native::new(&network, &samples, group_size as usize)
            .map_err(|error| Failure::Input(error.to_string()))?;
        let randomness = randomness(experiment);
        let saved = if kept { self.store.resume(name, experiment)? } else { None };
        let (mut outcome, state) = match saved {
            Some(saved) => saved,
            None => {
                let state = TrainerState::first(&plan, initial(&network, &randomness));
                (Outcome::new(experiment), state)
            }
        };
        let clip = experiment.settings.clip.unwrap_or(f64::INFINITY);
        let factor = match experiment.noise {
            Noise::Printed => None,
            Noise::Times(factor) => Some(Some(factor)),
            Noise::None => Some(None),
        };
        let mut runner = match factor {
            None => {
                let next = state.round;
                let trainer = Trainer::resume(plan, &model, state, next, randomness)
                    .map_err(|error| Failure::Input(error.to_string()))?;
                Runner::Trainer(Box::new(trainer))
            }
            Some(factor) => Runner::Altered(Box::new(Altered::new(plan, &model, state, randomness, factor)?)),
        };
        self.progress.start(name, outcome.epochs(), epochs, (train.len() as u64, data));
        let mut seconds = outcome.curve.last().map_or(0.0, |last| last.seconds);
        let mut saved = Instant::now();
        while outcome.epochs() < epochs {
            let began = Instant::now();
            let step = runner.epoch()?;
            seconds += began.elapsed().as_secs_f64();
            let seen = evaluation::evaluate(&network, test, &runner.state().weights, 1, clip, threads);
            let point = Point::of(&seen, step, seconds);
            runner.saw_accuracy(point.accuracy);
            outcome.curve.push(point);
            if kept && (outcome.epochs() == epochs || saved.elapsed().as_secs_f64() > BETWEEN_SAVES) {
                self.store.save(name, &outcome, runner.state())?;
                saved = Instant::now();
            }
            self.progress.epoch(outcome.epochs(), point.accuracy, began.elapsed().as_secs_f64());
        }
        Ok(outcome)
    }
}
