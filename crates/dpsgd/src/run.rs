//! A run from its first or next round to its end.

pub(crate) mod directory;
mod iterates;
mod job;
pub mod metrics;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dpsgd_data::Normalisation;
use dpsgd_privacy::Account;
use dpsgd_privacy::mechanism::Phase;
use dpsgd_report::json;
use dpsgd_report::rounding::up;
use dpsgd_report::run::{
    Iterate, Measurement, NoiseNames, NormalisationConstants, PrivateMeasurement, Summary,
};
use dpsgd_report::text::subscript;
use dpsgd_train::directory::{MODEL, REPORT, SUMMARY};
use dpsgd_train::ledger::Ledger;
use dpsgd_train::noise::exact;
use dpsgd_train::{Model, Plan, Round, RoundError, Trainer};
use serde_json::{Value, json};

pub(crate) use self::job::randomness;
pub use self::job::{Export, Job};

use self::directory::Directory;
use self::metrics::PrivateFigures;
use crate::evaluation::{Evaluate, Evaluation, PrivateTest};
use crate::facts::Facts;
use crate::inputs::Constants;
use crate::observer::{Observer, Outlook};
use crate::pytorch::MODEL_PY;
use crate::saved::{LedgerSummary, page};
use crate::settings::{Settings, number};
use crate::{Error, Sizes, shared_ledger};

/// The file with what was measured on a private test set.
pub const PRIVATE_TEST: &str = "private-test.json";

/// Why `choose = "better"` was refused.
pub(crate) const NOTHING_TO_CHOOSE_BY: &str = "choose = better: it compares both iterates on a public \
     test set, and there is none; take average or last";

/// A run that this process trains, in its directory.
///
/// # Guarantee
/// The trainer reads its plan from the ledger it charges, and the statement is about what that ledger says
/// was spent, so what is stated is what was trained.
pub struct Run<M: Model> {
    settings: Settings,
    facts: Facts,
    directory: Directory,
    trainer: Trainer<M, Ledger>,
    test: Option<Box<dyn Evaluate>>,
    private_test: Option<PrivateTest>,
    export: Box<Export>,
    program: Option<Box<job::Program>>,
    /// Seconds of training, those before a crash included.
    seconds: f64,
    not_finite: u64,
}

/// A round that was performed, as a run notes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Done {
    /// Whether it was the last of its epoch.
    pub ends_epoch: bool,
    /// η.
    pub step: f64,
    /// C.
    pub clip: f64,
    /// How long it took.
    pub wall: Duration,
}

impl Done {
    /// What a run notes of a round.
    pub fn of(round: &Round<'_>) -> Self {
        Self { ends_epoch: round.ends_epoch, step: round.eta, clip: round.bound, wall: round.wall }
    }
}

/// Performs one round of a trainer; see [`Run::train_by`].
pub type Perform<'a, M> = dyn FnMut(&mut Trainer<M, Ledger>) -> Result<Done, Error> + 'a;

/// How a call of [`Run::train`] ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The directory of the run.
    pub directory: PathBuf,
    /// Whether every round is done and the run is closed; if not, it was stopped and can be resumed.
    pub finished: bool,
    /// `summary.json`; null for a run that was stopped.
    pub summary: Value,
    /// What the run guarantees and reached, for people.
    pub statement: String,
    /// w, or its average, whichever is the model; w where the run was stopped.
    pub weights: Vec<f32>,
    /// What the charged rounds leak.
    pub account: Account,
    /// Group results that were not finite and counted as zero: **a function of private data**, for its owner
    /// only.
    pub not_finite: u64,
}

impl<M: Model> Run<M> {
    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The trainer, for a program that drives the rounds itself or hands it received models.
    pub fn trainer(&mut self) -> &mut Trainer<M, Ledger> {
        &mut self.trainer
    }

    /// Trains to the end, measures after every epoch, writes the results and closes the run.
    ///
    /// Stops after the current round when the observer wants to; the run then saves its state and can be
    /// resumed. Ends early when the observer wants to; the run is then closed like any other.
    pub fn train(self, observer: &mut dyn Observer) -> Result<Outcome, Error> {
        self.train_by(observer, &mut |trainer: &mut Trainer<M, Ledger>| Ok(Done::of(&trainer.round()?)))
    }

    /// [`Run::train`] with rounds that somebody else performs: a client of a federation, which sends what its
    /// rounds release.
    ///
    /// `round` performs one round of the trainer. After an error the run saves its state, as far as it has
    /// one.
    pub fn train_by(
        mut self,
        observer: &mut dyn Observer,
        round: &mut Perform<'_, M>,
    ) -> Result<Outcome, Error> {
        let plan = self.trainer.plan().clone();
        let last = plan.rounds();
        let first = self.trainer.next_round();
        let note = self.facts.note(&self.settings);
        observer.begins(&Outlook {
            net: &self.facts.net,
            data: &self.facts.data,
            threads: plan.threads(),
            directory: self.directory.path(),
            next: first,
            rounds: last,
            epochs: epochs(&plan, last),
            note: note.as_deref(),
        });
        let before = self.seconds;
        let timed = self.is_timed();
        let mut samples = 0.0;
        let mut shown = None;
        while self.trainer.next_round() < last {
            let phase = plan.position(self.trainer.next_round()).phase;
            let Done { ends_epoch, step, clip, wall } = match round(&mut self.trainer) {
                Ok(done) => done,
                Err(error) => {
                    // A failing model leaves w as it was: what has been paid for is kept. A ledger that cannot
                    // be written, or a copy of this process, must write nothing.
                    if !matches!(&error, Error::Round(why) if !matches!(why, RoundError::Model { .. })) {
                        self.save(&plan)?;
                    }
                    return Err(error);
                }
            };
            // The time of rounds whose size is private reveals it, and so N: it is kept nowhere.
            if timed {
                self.seconds += wall.as_secs_f64();
            }
            samples += self.settings.samples_per_round(phase);
            let next = self.trainer.next_round();
            observer.round(next);
            let speed = timed.then(|| samples / (self.seconds - before));
            let measured = ends_epoch || next == last;
            if measured {
                shown = Some(self.shown(&plan, (step, clip), speed, observer)?);
            }
            if next < last && observer.wants_to_end() {
                if !measured {
                    shown = Some(self.shown(&plan, (step, clip), speed, observer)?);
                }
                shown = shown.map(|measurement| self.ended(&plan, measurement));
                break;
            }
            if next < last && observer.wants_to_stop() {
                self.save(&plan)?;
                return self.stopped(observer);
            }
        }
        observer.ends();
        let shown = match shown {
            Some(measurement) => measurement,
            None => self.last_measurement(&plan)?,
        };
        self.finish(&shown)
    }

    /// Whether how long rounds took may be written down: what a filter kept is as secret as N under Poisson
    /// sampling, and the time of a round follows it.
    fn is_timed(&self) -> bool {
        let private = self.settings.mechanism.phases().iter().any(Phase::has_private_size);
        self.settings.samples.is_some() && !private
    }

    /// Measures, saves and tells the observer.
    fn shown(
        &mut self,
        plan: &Plan,
        at: (f64, f64),
        speed: Option<f64>,
        observer: &mut dyn Observer,
    ) -> Result<Measurement, Error> {
        let measurement = self.measured_and_saved(plan, at, speed)?;
        observer.measured(&measurement);
        Ok(measurement)
    }

    /// The last measurement of a run that is ended early: the ledger charges ahead, and what it charged counts as
    /// spent, whether or not it was performed.
    fn ended(&self, plan: &Plan, measurement: Measurement) -> Measurement {
        let charged = self.trainer.ledger().spent();
        let epsilon = self.settings.budget.spent(plan.mechanism(), charged).unwrap_or(f64::INFINITY);
        Measurement { round: charged, epsilon, ..measurement }
    }

    /// Nothing was left to do but what comes after the last round.
    fn last_measurement(&mut self, plan: &Plan) -> Result<Measurement, Error> {
        let known = metrics::read(self.directory.path())?.pop();
        let config = plan.config();
        let at = known.as_ref().map_or((config.step.start, config.clipping.start), |k| (k.step, k.clip));
        let speed = known.as_ref().and_then(|known| known.samples_per_s);
        // The last line may be of an epoch before the last: the rounds after it were charged and lost in the
        // crash, and what is said at the end counts them. It may also be damaged, so only what no statement
        // rests on is taken from it.
        match known.is_some_and(|known| known.round == plan.rounds()) {
            true => Ok(self.measured(plan, at, speed)),
            false => self.measured_and_saved(plan, at, speed),
        }
    }

    /// Measures on the test set.
    fn measured(&mut self, plan: &Plan, (step, clip): (f64, f64), speed: Option<f64>) -> Measurement {
        let nothing = Evaluation { loss: f64::NAN, clipped: f64::NAN, ..Evaluation::default() };
        let mut look =
            |weights: &[f32]| self.test.as_mut().map_or(nothing, |test| test.evaluate(weights, clip));
        let last = look(self.trainer.weights());
        let average = self.trainer.average().map(look);
        if let Some(accuracy) = last.accuracy {
            self.trainer.saw_accuracy(accuracy);
        }
        let (seen, iterates) = iterates::chosen(self.settings.algorithm.choose, last, average);
        let spent = self.trainer.next_round();
        let budget = self.settings.budget;
        let note = self.facts.note(&self.settings);
        Measurement {
            round: spent,
            epoch: epochs(plan, spent),
            updates: self.trainer.state().outer.steps,
            test_loss: seen.loss,
            test_accuracy: seen.accuracy,
            test_clipping_fraction: seen.clipped,
            two_classes: seen.two_classes,
            iterates,
            step,
            clip,
            // The whole run was accounted for before it began; a part of it that cannot be must not cost the
            // work.
            epsilon: budget.spent(plan.mechanism(), spent).unwrap_or(f64::INFINITY),
            delta: budget.delta,
            adversary: budget.adversary.name().to_string(),
            seconds: self.is_timed().then_some(self.seconds),
            samples_per_s: speed,
            private: note.is_none() && self.trainer.is_private(),
            note,
        }
    }

    /// Measures on the test set, then writes the line of the epoch and the checkpoint.
    fn measured_and_saved(
        &mut self,
        plan: &Plan,
        at: (f64, f64),
        speed: Option<f64>,
    ) -> Result<Measurement, Error> {
        let measurement = self.measured(plan, at, speed);
        self.directory.push(&measurement)?;
        if let Some(found) = self.trainer.take_diagnostics() {
            self.not_finite += found.counts.not_finite;
            if self.settings.diagnostics {
                let line = PrivateFigures {
                    epoch: measurement.epoch,
                    train_loss: found.mean_loss(),
                    train_clipping_fraction: found.clipped_share(),
                    not_finite: found.counts.not_finite,
                };
                metrics::push_diagnostics(self.directory.path(), &line)?;
            }
        }
        self.save(plan)?;
        Ok(measurement)
    }

    fn save(&self, plan: &Plan) -> Result<(), Error> {
        let epoch = epochs(plan, self.trainer.next_round()) as u64;
        self.directory.save(self.trainer.state(), self.trainer.ledger(), epoch, self.seconds)
    }

    fn account(&self) -> Result<Account, Error> {
        spent_account(&self.settings, self.trainer.ledger().spent())
    }

    /// Gives back what was charged ahead and not run, so that the statement is about what was run.
    fn stopped(mut self, observer: &mut dyn Observer) -> Result<Outcome, Error> {
        observer.ends();
        self.trainer.ledger_mut().stop()?;
        let account = self.account()?;
        let spent = self.trainer.ledger().spent();
        let directory = self.directory.path().to_owned();
        let budget = self.settings.budget;
        let note = self.facts.note(&self.settings).map(|note| format!(" ({note})")).unwrap_or_default();
        let statement = format!(
            "stopped after round {} of {}; {spent} rounds are charged, ε ≤ {} at δ = {} against {}{note}. \
             Continue with: dpsgd resume {}\n",
            self.trainer.next_round(),
            self.settings.mechanism.rounds(),
            up(budget.spent(&self.settings.mechanism, spent)?, 6),
            number(budget.delta),
            subscript(budget.adversary),
            directory.display()
        );
        Ok(Outcome {
            directory,
            finished: false,
            summary: Value::Null,
            statement,
            weights: self.trainer.weights().to_vec(),
            account,
            not_finite: self.not_finite,
        })
    }

    /// Measures the finished model on the private test set, unless that has been done before.
    ///
    /// # Guarantee
    /// The noise is drawn once in the life of the run: the ledger knows before it is drawn, and the shared ledger
    /// with it, so that neither a crash nor an older copy of the directory draws it again
    /// ([`Ledger::measure`](dpsgd_train::ledger::Ledger::measure)).
    fn measure_privately(&mut self, last: &Measurement) -> Result<(), Error> {
        let Some(test) = self.private_test.take() else { return Ok(()) };
        if private_test(self.directory.path())?.is_some() || !self.trainer.ledger_mut().measure()? {
            return Ok(());
        }
        let randomness = randomness(&self.settings, self.trainer.ledger().resumes())?;
        // After the draws of a normalisation.
        let mut drawn = 1 << 32;
        let found = test.release(self.both(last).0, &mut |deviation| {
            drawn += 1;
            exact::before_training(&randomness, drawn, deviation)
        })?;
        self.directory.write(PRIVATE_TEST, format!("{:#}\n", json!(found)).as_bytes())
    }

    /// The iterate that the last measurement chose for the model, and the other, where there are two.
    fn both(&self, last: &Measurement) -> (&[f32], Option<&[f32]>) {
        let (w, average) = (self.trainer.weights(), self.trainer.average());
        match (last.iterates, average) {
            (Some(iterates), Some(average)) if iterates.chosen == Iterate::Average => (average, Some(w)),
            (Some(_), other) => (w, other),
            (None, _) => (w, None),
        }
    }

    /// Writes model, summary and report and closes the run.
    fn finish(mut self, last: &Measurement) -> Result<Outcome, Error> {
        self.measure_privately(last)?;
        let account = self.account()?;
        let (charged, resumes) = (self.trainer.ledger().spent(), self.trainer.ledger().resumes());
        let ledger = LedgerSummary { charged, resumes, closed: false };
        let (settings, facts) = (&self.settings, &self.facts);
        let (constants, path) = (self.directory.constants(), self.directory.path());
        let summary = summary(settings, facts, &account, last, ledger, constants, path);
        let (value, mut statement) = (summary.json(), summary.statement());
        let (chosen, other) = self.both(last);
        let write = |name: &str, weights: &[f32]| {
            let file = (self.export)(weights, texts(&value, facts, last));
            self.directory
                .write(name, &file.map_err(|why| Error::file(self.directory.path().join(name), why))?)
        };
        write(MODEL, chosen)?;
        if let (Some(other), Some(iterates)) = (other, &last.iterates) {
            write(iterates.other_file(), other)?;
        }
        if let Some(program) = &self.program {
            let text = program(settings, self.directory.constants());
            self.directory.write(MODEL_PY, text.as_bytes())?;
        }
        self.directory.write(SUMMARY, json::line(&value).as_bytes())?;
        let html = page(self.directory.path(), settings, facts, &account, ledger)?;
        self.directory.write(REPORT, html.as_bytes())?;
        let directory = self.directory.path().to_owned();
        let weights = self.both(last).0.to_vec();
        self.trainer.ledger_mut().finish()?;
        statement.push_str(&shared_ledger::statement(&self.settings, &self.facts));
        let not_finite = self.not_finite;
        Ok(Outcome { directory, finished: true, summary: value, statement, weights, account, not_finite })
    }
}

/// What was measured on a private test set, with noise; if there is one and the run has finished.
pub(crate) fn private_test(directory: &Path) -> Result<Option<PrivateMeasurement>, Error> {
    let path = directory.join(PRIVATE_TEST);
    match std::fs::read(&path) {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).map(Some).map_err(|error| Error::file(&path, error.to_string()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(&path)(error)),
    }
}

/// What is said at the end of a run; also what a finished run must say when it is verified.
pub(crate) fn summary<'a>(
    settings: &'a Settings,
    facts: &'a Facts,
    account: &'a Account,
    last: &'a Measurement,
    ledger: LedgerSummary,
    constants: Option<&'a Constants>,
    directory: &Path,
) -> Summary<'a> {
    let rounds = settings.mechanism.rounds();
    let stopped = settings.max_epsilon.filter(|_| rounds < settings.planned).map(|most| {
        format!(
            "stopped after {rounds} of {} rounds: the next would exceed --max-epsilon {}",
            settings.planned,
            number(most)
        )
    });
    let noise = settings.algorithm.noise;
    // A damaged file is an error where it is read first, in `Run::finish` or `page`.
    let private_test = private_test(directory).ok().flatten();
    Summary {
        data: &facts.data,
        net: &facts.net,
        features: settings.data.features.map(|features| features.name()),
        parameters: facts.parameters,
        directory: directory.display().to_string(),
        last,
        baseline: facts.baseline(),
        unmeasured: facts.unmeasured(settings),
        private_test,
        account,
        sizes: Sizes { samples: settings.samples, groups: settings.groups },
        noise: NoiseNames { kind: noise.name(), covers: noise.covers() },
        resumes: ledger.resumes,
        stopped,
        uncovered: &facts.uncovered,
        normalisation: normalisation(settings, constants),
        algorithm: settings.algorithm_json(),
    }
}

/// The constants that every input of the model went through, where there are any.
fn normalisation<'a>(
    settings: &Settings,
    constants: Option<&'a Constants>,
) -> Option<NormalisationConstants<'a>> {
    match (constants, settings.data.public_normalisation()) {
        (Some(known), _) => {
            Some(NormalisationConstants { mean: (&known.mean[..]).into(), std: (&known.std[..]).into() })
        }
        (None, Normalisation::Public { mean, std }) => {
            Some(NormalisationConstants { mean: mean.into(), std: std.into() })
        }
        (None, _) => None,
    }
}

/// What goes into the file of the model. One text only: the order of several is not defined, and a file with
/// a seed is to be repeatable.
fn texts(summary: &Value, facts: &Facts, last: &Measurement) -> HashMap<String, String> {
    let told = json!({
        "private": last.private,
        "note": summary["note"],
        "data": facts.data,
        "net": facts.net,
        "guarantees": summary["guarantees"],
        "uncovered": facts.uncovered,
        "features": summary["features"],
        "iterates": summary["iterates"],
        "normalisation": summary["normalisation"],
    });
    HashMap::from([("dpsgd".to_string(), told.to_string())])
}

/// The first rounds of a run in epochs.
fn epochs(plan: &Plan, rounds: u64) -> f64 {
    let mut left = rounds;
    let mut epochs = 0.0;
    for phase in plan.mechanism().phases() {
        let here = left.min(phase.rounds());
        epochs += here as f64 / phase.sampling().rounds_per_epoch().max(1) as f64;
        left -= here;
    }
    epochs
}

/// What a run leaks of which `charged` rounds are charged.
///
/// # Guarantee
/// That of [`Mechanism::spent`](dpsgd_privacy::mechanism::Mechanism::spent): everything that may have left is
/// counted.
pub(crate) fn spent_account(settings: &Settings, charged: u64) -> Result<Account, Error> {
    Ok(settings.account_of(charged)?)
}
