//! The training of a run once more, with canaries, and what they prove about its leakage.
//!
//! Some training samples are replaced by canaries, each in one of two forms by a fair coin. From what the
//! training releases the coins are guessed, and the number of right guesses gives a lower bound on ε
//! (Steinke, Nasr and Jagielski 2023) and on µ. The run itself is not touched.

mod shown;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use dpsgd_audit::canaries::{Canaried, Canary};
use dpsgd_audit::one_run::{self, Proved};
use dpsgd_data::{Dataset, Labelled};
use dpsgd_engine::{GradientWorker, Label, Samples};
use dpsgd_kernels::Level;
use dpsgd_privacy::mechanism::Neighbours;
use dpsgd_privacy::{Adversary, adversary};
use dpsgd_train::{Model, Native, Purpose, Randomness, Trainer, Unrecorded};

use crate::prepare::{Prepared, initial};
use crate::run::directory::saved_constants;
use crate::saved::SavedRun;
use crate::settings::RawSettings;
use crate::{Error, Observer, Outlook};

pub use shown::COST;

/// The most values that are kept: canaries times rounds, four bytes each.
const MOST_VALUES: u64 = 1 << 29;

/// What a canary is, and what the auditor sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum CanaryKind {
    /// A gradient of its own coordinate, up or down; the auditor sees every update, as A₀ does
    Gradient,
    /// A sample with its label or with a wrong one; the auditor sees the final model only
    Label,
}

impl CanaryKind {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            CanaryKind::Gradient => "gradient",
            CanaryKind::Label => "label",
        }
    }
}

/// An audit of a training run.
#[derive(Clone, Copy, Debug)]
pub struct TrainingAudit {
    /// Canaries.
    pub canaries: u64,
    /// What they are.
    pub kind: CanaryKind,
    /// The probability with which the lower bounds hold.
    pub confidence: f64,
}

/// ε at one δ: proved at least, claimed at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Between {
    /// δ.
    pub delta: f64,
    /// Claimed: at most.
    pub upper: f64,
    /// Proved: at least.
    pub lower: f64,
}

/// What an audit of a training run proved. **A function of a second run on the same data**: publishing it
/// costs the guarantee of the run once more.
#[derive(Clone, Debug)]
pub struct TrainingAuditResult {
    /// The audit.
    pub audit: TrainingAudit,
    /// The directory of the run.
    pub run: String,
    /// The network.
    pub net: String,
    /// Against whom ε is claimed.
    pub adversary: Adversary,
    /// At several δ.
    pub points: Vec<Between>,
    /// At the δ of the run.
    pub at_delta: Between,
    /// The guesses behind the bound at the δ of the run.
    pub proved: Proved,
}

fn refuse<T>(why: impl Into<String>) -> Result<T, Error> {
    Err(Error::Refused(why.into()))
}

/// Training samples some of which have another label.
struct Relabelled {
    samples: Labelled,
    labels: HashMap<u32, u32>,
}

impl Samples for Relabelled {
    fn count(&self) -> usize {
        self.samples.count()
    }

    fn copy_input(&self, index: u32, out: &mut [f32]) {
        self.samples.copy_input(index, out);
    }

    fn label(&self, index: u32) -> Label<'_> {
        match self.labels.get(&index) {
            Some(label) => Label::Class(*label),
            None => self.samples.label(index),
        }
    }
}

/// Which samples are canaries, and the coin of each.
struct Drawn {
    slots: Vec<u32>,
    coins: Vec<bool>,
}

impl TrainingAudit {
    /// Trains a second model with the settings of the run, guesses, and says what that proves.
    pub fn run(
        &self,
        run: &SavedRun,
        threads: Option<usize>,
        observer: &mut dyn Observer,
    ) -> Result<TrainingAuditResult, Error> {
        if !(self.confidence > 0.5 && self.confidence < 1.0) {
            return refuse(format!("confidence = {}: above 0.5 and below 1", self.confidence));
        }
        let raw = RawSettings { threads, ..run.raw().clone() };
        let mut prepared = Prepared::new(&raw, observer)?;
        let constants = saved_constants(run.path())?;
        self.check(&prepared)?;
        prepared.inputs.normalise_again(&prepared.settings.data, constants.as_ref())?;
        let randomness = Randomness::from_system()?;
        let drawn = self.drawn(prepared.inputs.split.train.len(), &randomness);
        let scores = match self.kind {
            CanaryKind::Gradient => gradients(&mut prepared, &drawn, randomness, observer)?,
            CanaryKind::Label => labels(&mut prepared, &drawn, randomness, observer)?,
        };
        let budget = prepared.settings.budget;
        let claimed = adversary::curve(&prepared.settings.mechanism, budget.adversary)?;
        let between = |delta: f64| -> Result<(Between, Proved), Error> {
            let proved = one_run::prove(&scores, &drawn.coins, delta, self.confidence);
            Ok((Between { delta, upper: claimed.epsilon(delta)?.upper, lower: proved.epsilon }, proved))
        };
        let deltas = [-2, -3, -4, -5, -6, -8, -10].map(|exponent| 10f64.powi(exponent));
        let points = deltas.into_iter().map(|delta| Ok(between(delta)?.0)).collect::<Result<_, Error>>()?;
        let (at_delta, proved) = between(budget.delta)?;
        Ok(TrainingAuditResult {
            audit: *self,
            run: run.path().display().to_string(),
            net: prepared.settings.net.name.clone(),
            adversary: budget.adversary,
            points,
            at_delta,
            proved,
        })
    }

    fn check(&self, prepared: &Prepared) -> Result<(), Error> {
        let train = &prepared.inputs.split.train;
        let most = train.len().min(prepared.network.dimension()) as u64;
        if !(100..=most).contains(&self.canaries) {
            return refuse(format!(
                "canaries = {}: between 100 and {most} (each takes a sample and a coordinate)",
                self.canaries
            ));
        }
        let rounds = prepared.plan.rounds();
        let gradient = self.kind == CanaryKind::Gradient;
        if gradient && self.canaries.saturating_mul(rounds) > MOST_VALUES {
            return refuse(format!(
                "canaries = {}: with {rounds} rounds at most {} (every canary is followed through every round)",
                self.canaries,
                MOST_VALUES / rounds
            ));
        }
        if gradient && prepared.settings.mechanism.phases().len() > 1 {
            return refuse("kind = gradient: only for a run of one phase; take --kind label");
        }
        if self.kind == CanaryKind::Label && train.classes().is_none_or(|classes| classes < 2) {
            return refuse("kind = label: the data have no labels to exchange");
        }
        Ok(())
    }

    fn drawn(&self, samples: usize, randomness: &Randomness) -> Drawn {
        let mut stream = randomness.stream(Purpose::Splitting, 0);
        let mut slots: Vec<u32> = (0..samples as u32).collect();
        for first in 0..self.canaries as usize {
            let other = first + stream.below((samples - first) as u32) as usize;
            slots.swap(first, other);
        }
        slots.truncate(self.canaries as usize);
        let coins = slots.iter().map(|_| stream.below(2) == 1).collect();
        Drawn { slots, coins }
    }
}

/// The likelihood ratios of canaries that are gradients, from what their coordinates showed in every round.
fn gradients(
    prepared: &mut Prepared,
    drawn: &Drawn,
    randomness: Randomness,
    observer: &mut dyn Observer,
) -> Result<Vec<f64>, Error> {
    let model = prepared.model();
    let mechanism = &prepared.settings.mechanism;
    let phase = &mechanism.phases()[0];
    let group_size = phase.sampling().group_size();
    // Long enough that a group with a canary hands over hardly anything else, whatever the others are.
    let bound = prepared.plan.config().clipping.start.max(1.0);
    let long = (1e3 * bound * group_size as f64) as f32;
    // Where a sample is added or removed, its other form is to be absent: it adds nothing.
    let other = match mechanism.neighbours() {
        Neighbours::AddRemove => 0.0,
        Neighbours::Substitute => -long,
    };
    let stride = model.dimension() / drawn.slots.len();
    let mut stream = randomness.stream(Purpose::Splitting, 1);
    let places: Vec<usize> =
        (0..drawn.slots.len()).map(|i| i * stride + stream.below(stride as u32) as usize).collect();
    let canaries = drawn.slots.iter().zip(&places).zip(&drawn.coins).map(|((slot, coordinate), coin)| {
        (*slot, Canary { coordinate: *coordinate, value: if *coin { long } else { other } })
    });
    let samples = model.samples();
    let model = Arc::new(Canaried::new(model, canaries.collect()));
    let divisor = prepared.plan.divisor(&prepared.plan.position(0));
    // In units of C.
    let mut seen: Vec<Vec<f32>> = vec![Vec::new(); drawn.slots.len()];
    train(prepared, model, randomness, observer, |update, bound| {
        for (seen, place) in seen.iter_mut().zip(&places) {
            seen.push((f64::from(update[*place]) * divisor / bound) as f32);
        }
    })?;
    let ratio = one_run::Ratio {
        rate: prepared.settings.samples_per_round(0) / samples as f64,
        deviation: 2.0 * phase.sigma(),
        other: f64::from(other / long),
    };
    Ok(seen.iter().map(|rounds| ratio.score(rounds)).collect())
}

/// How much more the final model believes in the wrong label of every canary than in the right one.
fn labels(
    prepared: &mut Prepared,
    drawn: &Drawn,
    randomness: Randomness,
    observer: &mut dyn Observer,
) -> Result<Vec<f64>, Error> {
    let data: Arc<Dataset> = Arc::new(prepared.inputs.split.train.clone());
    let classes = data.classes().unwrap_or(2) as u32;
    let mut stream = randomness.stream(Purpose::Splitting, 2);
    let wrong: Vec<(u32, u32)> = drawn
        .slots
        .iter()
        .map(|slot| {
            let label = data.label(*slot as usize).unwrap_or(0);
            (label, (label + 1 + stream.below(classes - 1)) % classes)
        })
        .collect();
    let labels = drawn.slots.iter().zip(&wrong).zip(&drawn.coins).filter(|(_, coin)| **coin);
    let labels = labels.map(|((slot, labels), _)| (*slot, labels.1)).collect();
    let samples: Arc<dyn Samples> = Arc::new(Relabelled { samples: Labelled(data), labels });
    let model = Native::new(Arc::clone(&prepared.network), Arc::clone(&samples));
    let model = Arc::new(prepared.settings.algorithm.inside(model));
    let weights = train(prepared, model, randomness, observer, |_, _| {})?;
    let mut worker = GradientWorker::new(Arc::clone(&prepared.network), samples, 1, Level::best());
    worker.weights_mut().copy_from_slice(&weights);
    // The output for the wrong label over that for the right one: the likelihood ratio of a softmax.
    let score = |(slot, (right, wrong)): (&u32, &(u32, u32))| {
        let outputs = worker.outputs(*slot);
        let at = |label: u32| outputs.get(label as usize).copied().unwrap_or_default();
        f64::from(at(*wrong)) - f64::from(at(*right))
    };
    Ok(drawn.slots.iter().zip(&wrong).map(score).collect())
}

/// Trains as the run did, with fresh randomness; the final weights. Nothing is recorded: the second run is
/// thrown away, and nothing resumes it.
fn train<M: Model>(
    prepared: &Prepared,
    model: Arc<M>,
    randomness: Randomness,
    observer: &mut dyn Observer,
    mut see: impl FnMut(&[f32], f64),
) -> Result<Vec<f32>, Error> {
    let weights = initial(&prepared.network, &randomness);
    let ledger = Unrecorded::new(Arc::clone(&prepared.plan));
    let mut trainer = Trainer::new(ledger, model, weights, randomness)?;
    observer.begins(&Outlook {
        net: &prepared.settings.net.name,
        data: &prepared.inputs.name,
        threads: prepared.plan.threads(),
        directory: Path::new(""),
        next: 0,
        rounds: prepared.plan.rounds(),
        epochs: prepared.plan.epochs() as f64,
        note: None,
    });
    while !trainer.finished() {
        let round = trainer.round().map_err(|error| Error::Refused(error.to_string()))?;
        see(round.update, round.bound);
        let next = round.round + 1;
        observer.round(next);
    }
    observer.ends();
    Ok(trainer.weights().to_vec())
}
