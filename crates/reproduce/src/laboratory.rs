//! Where experiments are run: the data, the threads, what is saved, and the progress that is reported.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use dpsgd::settings::{NoiseName, Population};
use dpsgd::{Error, RawSettings, Settings, evaluation, net};
use dpsgd_data::features::{self, Features};
use dpsgd_data::{Dataset, Known, Labelled, Split, known};
use dpsgd_engine::Network;
use dpsgd_privacy::Adversary;
use dpsgd_privacy::mechanism::Mechanism;
use dpsgd_train::plan::MOST_THREADS;
use dpsgd_train::{Native, Plan, Purpose, Randomness, Trainer, TrainerState, Unrecorded};

use crate::altered::Altered;
use crate::experiment::{AddedNoise, Experiment, Portion};
use crate::progress::{Progress, Watch};
use crate::stated::DELTA;
use crate::store::{EpochPoint, ExperimentOutcome, Store};
use crate::{Options, error};

/// Seconds between two checkpoints of a run, at least.
const BETWEEN_SAVES: f64 = 20.0;

/// The most data sets that are kept in memory: two portions of a set at a time are enough, and CIFAR-10 is
/// large.
const MOST_LOADED: usize = 4;

/// Public samples, normalised by published constants, or their features.
struct Loaded {
    what: (Known, Portion, Option<Features>),
    train: Arc<Dataset>,
    test: Arc<Dataset>,
}

/// Where experiments are run.
pub struct Laboratory<'w> {
    store: Store,
    data_dir: Option<PathBuf>,
    threads: usize,
    loaded: Vec<Loaded>,
    /// Experiments may be computed if their names begin with one of these, or if there are none; and whether
    /// any did.
    only: Vec<(String, Cell<bool>)>,
    /// Whether nothing at all may be computed for now.
    pub frozen: bool,
    /// The progress that is reported.
    pub progress: Progress<'w>,
}

/// The trainer, or what it is compared with.
///
/// Nothing is charged: an experiment has a seed and is not private, and its data are public.
enum Runner {
    Trainer(Box<Trainer<Native, Unrecorded>>),
    Altered(Box<Altered<Native>>),
}

impl Runner {
    fn new(
        noise: AddedNoise,
        plan: Arc<Plan>,
        model: Arc<Native>,
        state: TrainerState,
        randomness: Randomness,
    ) -> Result<Self, Error> {
        let factor = match noise {
            AddedNoise::Printed => {
                let ledger = Unrecorded::at(plan, state.round);
                let trainer = Trainer::resume(ledger, model, state, randomness)?;
                return Ok(Runner::Trainer(Box::new(trainer)));
            }
            AddedNoise::Times(factor) => Some(factor),
            AddedNoise::None => None,
        };
        Ok(Runner::Altered(Box::new(Altered::new(plan, &model, state, randomness, factor)?)))
    }

    /// Trains for an epoch; returns η of its last round.
    fn epoch(&mut self) -> Result<f64, Error> {
        match self {
            Runner::Trainer(trainer) => loop {
                let round = trainer.round().map_err(error::round)?;
                if round.ends_epoch {
                    return Ok(round.eta);
                }
            },
            Runner::Altered(altered) => loop {
                if let Some(eta) = altered.round()? {
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

/// The run of the first epochs of an experiment on N samples, with everything decided.
fn resolved(experiment: &Experiment, samples: u64, epochs: u64, threads: usize) -> Result<Settings, Error> {
    let given = &experiment.settings;
    let raw = RawSettings {
        epochs: Some(epochs),
        threads: Some(threads),
        // The run has a seed anyway, and the two kinds of noise differ by a thousandth.
        noise: given.noise.or(Some(NoiseName::Fast)),
        // A baseline has neither noise nor C, but draws its batches as the mechanism does.
        sigma: given.sigma.or(Some(1.0)),
        clip: given.clip.or(Some(1.0)),
        ..given.clone()
    };
    Ok(raw.resolve_for(Population::measured(samples, true))?)
}

/// The mechanism that accounts for the first epochs of an experiment.
pub fn mechanism(experiment: &Experiment, epochs: u64) -> Result<Mechanism, Error> {
    Ok(resolved(experiment, experiment.samples(), epochs, 1)?.mechanism)
}

/// The experiment with the smallest σ whose ε against A₀ over the given epochs is at most the given one.
pub fn calibrated(mut experiment: Experiment, epochs: u64, epsilon: f64) -> Result<Experiment, Error> {
    let raw = RawSettings {
        epochs: Some(epochs),
        sigma: None,
        target_epsilon: Some(epsilon),
        delta: Some(DELTA),
        adversary: Some(Adversary::A0),
        ..experiment.settings.clone()
    };
    let settings = raw.resolve_for(Population::measured(experiment.samples(), true))?;
    experiment.settings.sigma = Some(settings.mechanism.phases()[0].sigma());
    Ok(experiment)
}

/// The draws of an experiment. They are those of an uninterrupted run: with a seed nothing is private, and
/// resuming does not change a bit.
fn randomness(experiment: &Experiment) -> Randomness {
    Randomness::from_seed(experiment.settings.seed.unwrap_or(0), 0)
}

fn initial(network: &Network, randomness: &Randomness) -> Vec<f32> {
    let mut stream = randomness.stream(Purpose::Initialisation, 0);
    network.initial(|| stream.unit() as f32)
}

fn network(settings: &Settings, train: &Dataset) -> Result<Arc<Network>, Error> {
    let (_, spec) = net::named(&settings.net, train)?;
    Ok(Arc::new(net::checked(&spec, train)?))
}

impl<'w> Laboratory<'w> {
    /// With its outcomes in a directory.
    pub fn new(store: PathBuf, options: &Options, watch: &'w mut dyn Watch) -> Result<Self, Error> {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
        Ok(Self {
            store: Store::open(store)?,
            data_dir: options.data_dir.clone(),
            threads: options.threads.unwrap_or_else(cores),
            loaded: Vec::new(),
            only: options.only.iter().map(|name| (name.clone(), Cell::new(false))).collect(),
            frozen: false,
            progress: Progress::new(watch),
        })
    }

    /// The samples an experiment learns from and is measured on.
    fn load(&mut self, experiment: &Experiment) -> Result<(Arc<Dataset>, Arc<Dataset>), Error> {
        let what = (experiment.data(), experiment.part, experiment.settings.features);
        if let Some(found) = self.loaded.iter().find(|loaded| loaded.what == what) {
            return Ok((found.train.clone(), found.test.clone()));
        }
        let (data, part, wanted) = what;
        let mut split = portion(known::load(data, self.data_dir.as_deref())?, data, part)?;
        match wanted {
            Some(wanted) => {
                // Those of CIFAR-10 are 2 GB: make room first.
                self.loaded.clear();
                split = features::of(&split, wanted, self.threads)?;
            }
            None => {
                split.normalise(&data.normalisation(), &mut |_| 0.0)?;
            }
        }
        if self.loaded.len() >= MOST_LOADED {
            self.loaded.remove(0);
        }
        let (train, test) = (Arc::new(split.train), Arc::new(split.test));
        self.loaded.push(Loaded { what, train: train.clone(), test: test.clone() });
        Ok((train, test))
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

    /// The names that were asked for and that no experiment has.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        self.only.iter().filter(|(_, found)| !found.get()).map(|(only, _)| only.as_str())
    }

    /// The outcomes.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Brings an experiment to the given number of epochs, from where it stands. An experiment that may not
    /// be computed is returned as far as it is, if it was ever begun.
    pub fn run(
        &mut self,
        name: &str,
        experiment: &Experiment,
        epochs: u64,
    ) -> Result<Option<ExperimentOutcome>, Error> {
        let found = self.store.outcome(name, experiment)?;
        let enough = found.as_ref().is_some_and(|found| found.epochs() >= epochs);
        if !self.may(name) || enough {
            self.progress.done(experiment, epochs);
            return Ok(found);
        }
        self.advance(name, experiment, epochs, true).map(Some)
    }

    /// The last epoch of a short experiment that is not worth saving.
    pub fn measure(&mut self, name: &str, experiment: &Experiment, epochs: u64) -> Result<EpochPoint, Error> {
        let outcome = self.advance(name, experiment, epochs, false)?;
        outcome.curve.last().copied().ok_or_else(|| Error::Refused("0 epochs measure nothing".into()))
    }

    /// The network of an experiment before its first round.
    pub fn untrained(&mut self, experiment: &Experiment) -> Result<EpochPoint, Error> {
        let (train, test) = self.load(experiment)?;
        let settings = resolved(experiment, train.len() as u64, 1, self.threads)?;
        let network = network(&settings, &train)?;
        let weights = initial(&network, &randomness(experiment));
        let seen = evaluation::evaluate(&network, &test, &weights, 1, f64::INFINITY, settings.threads);
        Ok(EpochPoint::of(&seen, 0.0, 0.0))
    }

    fn advance(
        &mut self,
        name: &str,
        experiment: &Experiment,
        epochs: u64,
        kept: bool,
    ) -> Result<ExperimentOutcome, Error> {
        let (train, test) = self.load(experiment)?;
        let samples = train.len() as u64;
        let settings = resolved(experiment, samples, epochs, self.threads)?;
        let plan = settings.plan()?;
        let network = network(&settings, &train)?;
        let randomness = randomness(experiment);
        let saved = if kept { self.store.resume(name, experiment)? } else { None };
        let (mut outcome, state) = saved.unwrap_or_else(|| {
            (ExperimentOutcome::new(experiment), TrainerState::first(&plan, initial(&network, &randomness)))
        });
        let model = Arc::new(Native::new(network.clone(), Arc::new(Labelled(train))));
        let mut runner = Runner::new(experiment.noise, plan, model, state, randomness)?;
        self.progress.start(name, outcome.epochs(), epochs, (samples, experiment.data()));
        let clip = experiment.settings.clip.unwrap_or(f64::INFINITY);
        let mut seconds = outcome.curve.last().map_or(0.0, |last| last.seconds);
        let mut saved = Instant::now();
        while outcome.epochs() < epochs {
            let began = Instant::now();
            let step = runner.epoch()?;
            seconds += began.elapsed().as_secs_f64();
            let weights = &runner.state().weights;
            let seen = evaluation::evaluate(&network, &test, weights, 1, clip, settings.threads);
            let point = EpochPoint::of(&seen, step, seconds);
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

/// The portion of a data set that an experiment learns from and is measured on.
fn portion(Split { train, test }: Split, data: Known, part: Portion) -> Result<Split, Error> {
    let samples = train.len();
    Ok(match part {
        Portion::All => Split { train, test },
        Portion::First(first) => Split { train: train.part(0..first as usize)?, test },
        Portion::HeldOut { first, last } => {
            let start = samples.saturating_sub(last as usize);
            if (first as usize) > start {
                return crate::refuse(format!(
                    "{data}: {first} samples to learn from and {last} held out are more than the {samples} \
                     there are"
                ));
            }
            Split { train: train.part(0..first as usize)?, test: train.part(start..samples)? }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Clipping, paper};
    use crate::progress::Silent;
    use dpsgd_privacy::mechanism::SamplingKind;

    fn options() -> Options {
        Options { threads: Some(1), ..Options::default() }
    }

    fn small(noise: AddedNoise) -> Experiment {
        let made = paper(Known::Mnist, SamplingKind::Shuffle, Clipping::Mixed, 128, 0.1, 7);
        Experiment { part: Portion::First(1280), noise, ..made }
    }

    /// With every kind of noise, and whatever the threads of the plan were.
    #[test]
    fn a_resumed_experiment_is_the_uninterrupted_one() {
        let place = tempfile::tempdir().unwrap();
        for (i, noise) in
            [AddedNoise::Printed, AddedNoise::Times(0.125), AddedNoise::None].into_iter().enumerate()
        {
            let (experiment, mut silent) = (small(noise), Silent);
            let mut laboratory = Laboratory::new(place.path().into(), &options(), &mut silent).unwrap();
            let whole = laboratory.run(&format!("whole-{i}"), &experiment, 2).unwrap().unwrap();
            let name = format!("halves-{i}");
            laboratory.run(&name, &experiment, 1).unwrap();
            let halves = laboratory.run(&name, &experiment, 2).unwrap().unwrap();
            let without_time = |outcome: &ExperimentOutcome| -> Vec<_> {
                outcome.curve.iter().map(|point| (point.accuracy, point.loss, point.step)).collect()
            };
            assert_eq!(without_time(&whole), without_time(&halves));
            assert_eq!(whole.epochs(), 2);
        }
    }

    #[test]
    fn what_may_not_be_computed_is_not() {
        let place = tempfile::tempdir().unwrap();
        let mut silent = Silent;
        let only = vec!["mnist-ss".to_string(), "other".to_string()];
        let options = Options { only, ..options() };
        let mut laboratory = Laboratory::new(place.path().into(), &options, &mut silent).unwrap();
        assert_eq!(laboratory.run("mnist-sh-mc-128", &small(AddedNoise::Printed), 1).unwrap(), None);
        assert!(laboratory.may("mnist-ss-ic-64"));
        assert_eq!(laboratory.unknown().collect::<Vec<_>>(), ["other"]);
    }

    /// σ of a committed result: had the calibration changed, the result would not be found again.
    #[test]
    fn calibration_finds_the_sigma_of_the_committed_results() {
        let cells = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/reproduce/cells");
        let store = Store::open(cells).unwrap();
        let outcome: ExperimentOutcome = store.read("beyond-mnist-ours-epsilon-3").unwrap().unwrap();
        let found = outcome.experiment.clone();
        let again = calibrated(found.clone(), outcome.epochs(), 3.0).unwrap();
        assert_eq!(again.settings.sigma, found.settings.sigma);
    }
}
