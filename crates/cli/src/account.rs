//! `dpsgd account`: everything that can be said about a run, computed once and shown twice.

use std::path::PathBuf;
use std::thread;

use clap::Args;
use dpsgd_privacy::exposure::RoundLaw;
use dpsgd_privacy::mechanism::{Mechanism, Sampling};
use dpsgd_privacy::printed::{self, Printed};
use dpsgd_privacy::shuffle_bound::ShuffleBound;
use dpsgd_privacy::{Adversary, Curve, Interval, PrivacyError, adversary, currency, gaussian, group};

use crate::settings::{self, Question, Run, Settings};
use crate::{Failure, json, print, statement};

/// The flags of `dpsgd account`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  dpsgd account
      the paper's own setting: MNIST, batches of 64, 100 epochs, σ = 2
  dpsgd account --samples 50000 --groups 256 --epochs 30 --sigma 1 --delta 1e-6
  dpsgd account --sampling shuffle --groups 1 --group-size 64 --differing 4
  dpsgd account --sampling poisson --rate 0.01 --rounds 1000 --noise-multiplier 1
  dpsgd account --config run.toml --epsilon 3 --json

In a file the settings have the names of the flags; [[phase]] tables change them during a run:
  samples = 50000
  sigma = 1.5
  release-mu = [0.1]
  [[phase]]
  epochs = 10
  [[phase]]
  epochs = 20
  sigma = 3.0")]
pub struct Account {
    #[command(flatten)]
    settings: Settings,
    /// Settings from a TOML file
    #[arg(long, value_name = "FILE.toml", help_heading = "Input and output")]
    config: Option<PathBuf>,
    /// Print one JSON object instead of a statement
    #[arg(long, help_heading = "Input and output")]
    json: bool,
}

impl Account {
    /// Accounts for the run and prints the result.
    pub fn run(self) -> Result<(), Failure> {
        let report = Report::of(settings::resolve(&self.settings, self.config.as_ref())?)?;
        if self.json {
            print(&json::line(&json::account(&report)))
        } else {
            print(&statement::account(&report))
        }
    }
}

/// Everything that can be said about a run.
pub struct Report {
    /// The run and the question.
    pub run: Run,
    /// What holds, A₁ first.
    pub guarantees: Vec<Guarantee>,
    /// The adversaries about whom nothing is claimed, and why.
    pub refused: Vec<(Adversary, String)>,
    /// E[c²], and gE.
    pub exposure: (f64, f64),
    /// What no analysis of a shuffled run can beat.
    pub floor: Option<ShuffleFloor>,
    /// A₀ for g > 1 by group privacy.
    pub group: Option<GroupPrivacy>,
    /// The limit G_{c·h(σ)} of the paper.
    pub approximation: Option<Approximation>,
    /// ρ of zCDP.
    pub zero_concentrated: f64,
    /// The paper's closed forms at a δ.
    pub printed: Vec<Printed>,
    /// That δ.
    pub printed_at: Option<f64>,
}

/// What is certified against one adversary.
pub struct Guarantee {
    /// Against whom.
    pub adversary: Adversary,
    /// ε or δ, whichever was asked for.
    pub answer: Interval,
    /// µ and the smallest error rate from which on it is stated, or why there is none.
    pub mu: Result<(Interval, f64), String>,
    /// (α, β).
    pub tradeoff: Vec<(f64, Interval)>,
    /// (ω, τ), where it could be computed.
    pub renyi: Vec<(f64, Interval)>,
    /// ρ of tCDP up to [`LARGEST_ORDER`], where it could be computed.
    pub truncated: Option<Interval>,
    /// The theorem.
    pub basis: String,
}

/// Lower bounds on the answer (ε or δ) for shuffled batches against A₀.
pub struct ShuffleFloor {
    /// The differing sample is zeroed out.
    pub add_remove: f64,
    /// The differing sample is substituted.
    pub substitute: f64,
    /// The bound takes every sample to be used in every epoch, which is not so here.
    pub left_over_ignored: bool,
}

/// 1 − (1−f)^{∘g} of the curve of one differing sample.
pub struct GroupPrivacy {
    /// ε at the δ asked for.
    pub epsilon: Option<Interval>,
    /// (α, β); empty where g is too large for the time of a command.
    pub tradeoff: Vec<(f64, Interval)>,
}

/// G_{c·h(σ)}, c = (m/N)·√T: the limit for many rounds. Not a guarantee.
pub struct Approximation {
    /// c·h(σ).
    pub mu: f64,
    /// ε or δ of G_µ, whichever was asked for.
    pub answer: f64,
}

/// The orders at which Rényi divergences are reported.
const ORDERS: [f64; 3] = [2.0, 8.0, 32.0];
/// Ω of tCDP.
pub const LARGEST_ORDER: f64 = 32.0;
/// The largest g for which 1 − (1−f)^{∘g} is evaluated step by step.
const MOST_STEPS: u64 = 32;

impl Report {
    /// Computes the report; independent parts run side by side.
    pub fn of(run: Run) -> Result<Self, Failure> {
        let (mechanism, question) = (&run.mechanism, run.question);
        let alphas = reported(&run.alphas);
        let given = match question {
            Question::Epsilon { delta } => Some(delta),
            Question::Delta { .. } => None,
        };
        let forms = |delta: f64| printed::as_printed(mechanism, delta).unwrap_or_default();
        let (a1, a0, beside, early) = thread::scope(|scope| {
            let a1 = scope.spawn(|| Guarantee::of(mechanism, Adversary::A1, question, &alphas));
            let early = scope.spawn(|| given.map(forms));
            let beside = scope.spawn(|| (floor(mechanism, question), group(mechanism, question, &alphas)));
            let a0 = Guarantee::of(mechanism, Adversary::A0, question, &alphas);
            (joined(a1), a0, joined(beside), joined(early))
        });
        let mut guarantees = Vec::new();
        let mut refused = Vec::new();
        for (adversary, outcome) in [(Adversary::A1, a1), (Adversary::A0, a0)] {
            match outcome {
                Ok(guarantee) => guarantees.push(guarantee),
                Err(error) => refused.push((adversary, error)),
            }
        }
        if guarantees.is_empty() {
            return Err(refused.swap_remove(0).1.into());
        }
        let printed_at = given.or_else(|| {
            let delta = guarantees[0].answer.upper;
            (delta > 0.0 && delta < 1.0).then_some(delta)
        });
        Ok(Self {
            exposure: exposure(mechanism),
            zero_concentrated: currency::zero_concentrated(mechanism),
            approximation: approximation(mechanism, question),
            printed: early.or_else(|| printed_at.map(forms)).unwrap_or_default(),
            printed_at,
            guarantees,
            refused: refused.into_iter().map(|(adversary, why)| (adversary, why.to_string())).collect(),
            floor: beside.0,
            group: beside.1,
            run,
        })
    }

    /// The guarantee against an adversary.
    pub fn against(&self, adversary: Adversary) -> Option<&Guarantee> {
        self.guarantees.iter().find(|guarantee| guarantee.adversary == adversary)
    }
}

fn joined<T>(handle: thread::ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// 1 % and 5 % are always reported.
fn reported(asked: &[f64]) -> Vec<f64> {
    let mut alphas = asked.to_vec();
    alphas.extend([0.01, 0.05]);
    alphas.sort_by(f64::total_cmp);
    alphas.dedup();
    alphas
}

/// ε or δ of a curve.
pub fn answer(curve: &dyn Curve, question: Question) -> Result<Interval, PrivacyError> {
    match question {
        Question::Epsilon { delta } => curve.epsilon(delta),
        Question::Delta { epsilon } => curve.delta(epsilon),
    }
}

impl Guarantee {
    fn of(
        mechanism: &Mechanism,
        adversary: Adversary,
        question: Question,
        alphas: &[f64],
    ) -> Result<Self, PrivacyError> {
        let curve = adversary::curve(mechanism, adversary)?;
        let renyi = |&order: &f64| Some((order, currency::renyi(mechanism, adversary, order).ok()?));
        Ok(Self {
            adversary,
            answer: answer(&*curve, question)?,
            mu: curve.mu_on_default_range().map_err(|error| error.to_string()),
            tradeoff: alphas
                .iter()
                .map(|&alpha| Ok((alpha, curve.beta(alpha)?)))
                .collect::<Result<_, PrivacyError>>()?,
            renyi: ORDERS.iter().filter_map(renyi).collect(),
            truncated: currency::truncated_concentrated(mechanism, adversary, LARGEST_ORDER).ok(),
            basis: adversary.basis(mechanism),
        })
    }
}

/// E[c²] and gE. A round of a permutation is a uniform subset like any other, so the mean is T·E[k²]
/// for shuffled batches too.
fn exposure(mechanism: &Mechanism) -> (f64, f64) {
    let mean = |phase| {
        let law = RoundLaw::of_phase(mechanism, phase);
        law.mass().iter().enumerate().map(|(k, q)| (k * k) as f64 * q).sum::<f64>()
    };
    let phases = mechanism.phases();
    let squares = phases.iter().map(|phase| phase.rounds() as f64 * mean(phase)).sum();
    let epochs: f64 = phases.iter().map(|phase| phase.epochs()).sum();
    (squares, mechanism.differing() as f64 * epochs)
}

/// The bound is about whole epochs with one noise, one differing sample and nothing else released;
/// anything else released can only add to it, but is left out as it is not part of the pair.
fn floor(mechanism: &Mechanism, question: Question) -> Option<ShuffleFloor> {
    let [phase] = mechanism.phases() else { return None };
    let Sampling::Shuffle { samples, groups, group_size } = phase.sampling() else { return None };
    let per_epoch = phase.sampling().rounds_per_epoch();
    let whole = phase.rounds() % per_epoch == 0;
    if !whole || phase.filtered() || mechanism.differing() != 1 {
        return None;
    }
    let bound = |shifts| {
        let z = phase.noise_multiplier();
        let bound = ShuffleBound::new(per_epoch, phase.rounds() / per_epoch, z, shifts).ok()?;
        match question {
            Question::Epsilon { delta } => bound.epsilon(delta).ok(),
            Question::Delta { epsilon } => Some(bound.delta(epsilon)),
        }
    };
    Some(ShuffleFloor {
        add_remove: bound((2.0, 1.0))?,
        substitute: bound((2.0, 0.0))?,
        left_over_ignored: samples % (groups * group_size) != 0,
    })
}

fn group(mechanism: &Mechanism, question: Question, alphas: &[f64]) -> Option<GroupPrivacy> {
    let g = mechanism.differing();
    if g == 1 {
        return None;
    }
    // The µ of further releases is that for g samples, which covers one sample as well.
    let mut single = mechanism.config();
    single.differing = 1;
    let curve = adversary::curve(&single.check().ok()?, Adversary::A0).ok()?;
    let step_by_step = |&alpha: &f64| Some((alpha, group::tradeoff(&*curve, g, alpha).ok()?));
    Some(GroupPrivacy {
        epsilon: match question {
            Question::Epsilon { delta } => group::epsilon(&*curve, g, delta).ok(),
            Question::Delta { .. } => None,
        },
        tradeoff: if g <= MOST_STEPS { alphas.iter().filter_map(step_by_step).collect() } else { Vec::new() },
    })
}

fn approximation(mechanism: &Mechanism, question: Question) -> Option<Approximation> {
    let [phase] = mechanism.phases() else { return None };
    let Sampling::Subsample { samples, groups, group_size: 1 } = phase.sampling() else { return None };
    if phase.filtered() || mechanism.differing() != 1 || !mechanism.releases().is_empty() {
        return None;
    }
    let c = groups as f64 / samples as f64 * (phase.rounds() as f64).sqrt();
    let mu = c * printed::h(phase.sigma());
    let answer = match question {
        Question::Epsilon { delta } => gaussian::epsilon(mu, delta),
        Question::Delta { epsilon } => gaussian::delta(mu, epsilon),
    };
    mu.is_finite().then_some(Approximation { mu, answer })
}
