//! A run from its first or next round to its end.

use std::path::{Path, PathBuf};

use dpsgd_train::native::Native;
use dpsgd_train::{Purpose, Randomness, Trainer};
use serde_json::Value;

use super::directory::Directory;
use super::evaluation;
use super::metrics::{self, Diagnostics, Epoch};
use super::outputs;
use super::progress::Progress;
use super::samples::Labelled;
use super::setup::Setup;
use crate::Failure;
use crate::settings::number;

/// The end of a run.
pub struct Ending {
    /// `summary.json`.
    pub summary: Value,
    /// The statement for people.
    pub statement: String,
    /// Group results since the start or the resume that were not finite; a function of private data.
    pub not_finite: u64,
}

/// Trains from the first round, in a new directory.
pub fn begin(mut setup: Setup, out: Option<PathBuf>, quiet: bool) -> Result<Ending, Failure> {
    let randomness = randomness(&setup, 0)?;
    let constants = setup.inputs.normalise(&setup.settings, &randomness)?;
    let mut stream = randomness.stream(Purpose::Initialisation, 0);
    let weights = setup.network.initial(|| stream.unit() as f32);
    let samples = Labelled(&setup.inputs.split.train);
    let model = model(&setup, &samples)?;
    let trainer = Trainer::new(setup.plan.clone(), &model, weights, randomness).map_err(refused)?;
    let directory = Directory::create(&setup, out, constants, trainer.state())?;
    Course { setup: &setup, directory, trainer, seconds: 0.0, not_finite: 0 }.run(quiet)
}

/// Goes on where a crash, or a kill, ended the run.
///
/// # Guarantee
/// Every round that the ledger charged counts as spent, whether or not its update reached the
/// checkpoint; none is done again, and the randomness is fresh.
pub fn resume(mut setup: Setup, path: &Path, quiet: bool) -> Result<Ending, Failure> {
    let (directory, state, seconds) = Directory::open(&setup, path)?;
    let book = directory.book();
    let randomness = randomness(&setup, book.resumes)?;
    setup.inputs.normalise_again(&setup.settings, directory.constants())?;
    let samples = Labelled(&setup.inputs.split.train);
    let model = model(&setup, &samples)?;
    let trainer =
        Trainer::resume(setup.plan.clone(), &model, state, book.charged, randomness).map_err(refused)?;
    Course { setup: &setup, directory, trainer, seconds, not_finite: 0 }.run(quiet)
}

fn randomness(setup: &Setup, resumes: u64) -> Result<Randomness, Failure> {
    match setup.settings.seed {
        Some(seed) => Ok(Randomness::from_seed(seed, resumes)),
        None => Randomness::from_system().map_err(|error| Failure::Machine(error.to_string())),
    }
}

fn model<'a>(setup: &'a Setup, samples: &'a Labelled) -> Result<Native<'a>, Failure> {
    // A checked group has no more samples than the data, which are in memory.
    let group_size = setup.settings.group_size.unwrap_or(1) as usize;
    Native::new(&setup.network, samples, group_size).map_err(|error| Failure::Input(error.to_string()))
}

fn refused(error: dpsgd_train::TrainerError) -> Failure {
    Failure::Input(error.to_string())
}

struct Course<'a> {
    setup: &'a Setup,
    directory: Directory,
    trainer: Trainer<'a, Native<'a>>,
    /// Seconds of training, those before a crash included.
    seconds: f64,
    not_finite: u64,
}

impl Course<'_> {
    fn run(mut self, quiet: bool) -> Result<Ending, Failure> {
        let setup = self.setup;
        let note = setup.facts().note(&setup.settings);
        let last = setup.plan.rounds();
        let first = self.trainer.next_round();
        let progress = Progress::new((first, last), self.epochs(last), note.as_deref(), quiet);
        progress.say(&format!(
            "training {} on {} with {} threads, into {}",
            setup.net,
            setup.inputs.name,
            setup.plan.threads(),
            self.directory.path().display()
        ));
        let before = self.seconds;
        let timed = setup.run.sizes.0.is_some();
        let mut shown = None;
        while self.trainer.next_round() < last {
            let (ends_epoch, step, clip) = match self.trainer.round(self.directory.ledger()) {
                Ok(round) => {
                    // The time of rounds whose size is drawn tells N: where that is private it is kept nowhere.
                    if timed {
                        self.seconds += round.wall.as_secs_f64();
                    }
                    (round.ends_epoch, round.eta, round.bound)
                }
                Err(error) => return Err(Failure::Machine(error.to_string())),
            };
            let next = self.trainer.next_round();
            progress.rounds(next);
            if ends_epoch || next == last {
                let speed = setup.samples_per_round() * (next - first) as f64 / (self.seconds - before);
                let epoch = self.evaluated((step, clip), timed.then_some(speed))?;
                progress.epoch(&epoch);
                shown = Some(epoch);
            }
        }
        progress.finish();
        let last = match shown {
            Some(epoch) => epoch,
            // Nothing was left to do but what comes after the last round.
            None => {
                let known = metrics::read(self.directory.path())?.pop();
                let config = setup.plan.config();
                let at =
                    known.as_ref().map_or((config.step.start, config.clipping.start), |k| (k.step, k.clip));
                let speed = known.as_ref().and_then(|known| known.samples_per_s);
                // The last line may be of an epoch before the last: the rounds behind it were charged and lost in
                // the crash, and what is said at the end counts them. It may also be damaged, so that only what
                // no statement rests on is taken from it.
                match known.is_some_and(|known| known.round == last) {
                    true => self.measured(at, speed)?,
                    false => self.evaluated(at, speed)?,
                }
            }
        };
        self.ended(&last)
    }

    fn epochs(&self, round: u64) -> f64 {
        let per_epoch = self.setup.run.mechanism.phases()[0].sampling().rounds_per_epoch().max(1);
        round as f64 / per_epoch as f64
    }

    /// Measures on the test set.
    fn measured(&mut self, (step, clip): (f64, f64), samples_per_s: Option<f64>) -> Result<Epoch, Failure> {
        let setup = self.setup;
        let seen = evaluation::evaluate(
            &setup.network,
            &setup.inputs.split.test,
            self.trainer.weights(),
            setup.settings.group_size.unwrap_or(1),
            clip,
            setup.plan.threads(),
        );
        if let Some(accuracy) = seen.accuracy {
            self.trainer.saw_accuracy(accuracy);
        }
        let spent = self.trainer.next_round();
        let note = setup.facts().note(&setup.settings);
        Ok(Epoch {
            round: spent,
            epoch: self.epochs(spent),
            updates: self.trainer.state().outer.steps,
            test_loss: seen.loss,
            test_accuracy: seen.accuracy,
            test_clipping_fraction: seen.clipped,
            step,
            clip,
            // The whole run was accounted for before it began; a part of it that cannot be must not cost the work.
            epsilon: setup.budget.spent(&setup.run.mechanism, spent).unwrap_or(f64::INFINITY),
            delta: setup.budget.delta,
            adversary: setup.budget.adversary.name().to_string(),
            seconds: setup.run.sizes.0.map(|_| self.seconds),
            samples_per_s,
            private: note.is_none() && self.trainer.is_private(),
            note,
        })
    }

    /// Measures on the test set, then writes the line of the epoch and the checkpoint.
    fn evaluated(&mut self, at: (f64, f64), samples_per_s: Option<f64>) -> Result<Epoch, Failure> {
        let setup = self.setup;
        let epoch = self.measured(at, samples_per_s)?;
        self.directory.push(&epoch)?;
        if let Some(found) = self.trainer.take_diagnostics() {
            self.not_finite += found.counts.not_finite;
            if setup.settings.diagnostics == Some(true) {
                let line = Diagnostics {
                    epoch: epoch.epoch,
                    train_loss: found.mean_loss(),
                    train_clipping_fraction: found.clipped_share(),
                    not_finite: found.counts.not_finite,
                };
                metrics::push_diagnostics(self.directory.path(), &line)?;
            }
        }
        self.directory.save(self.trainer.state(), epoch.epoch as u64, self.seconds)?;
        Ok(epoch)
    }

    fn ended(&mut self, last: &Epoch) -> Result<Ending, Failure> {
        let setup = self.setup;
        let stopped =
            setup.settings.max_epsilon.filter(|_| setup.plan.rounds() < setup.planned).map(|most| {
                format!(
                    "stopped after {} of {} rounds: the next would exceed --max-epsilon {}",
                    setup.plan.rounds(),
                    setup.planned,
                    number(most)
                )
            });
        let (summary, statement) =
            outputs::finish(&mut self.directory, setup, last, stopped, self.trainer.weights())?;
        Ok(Ending { summary, statement, not_finite: self.not_finite })
    }
}
