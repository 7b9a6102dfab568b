//! The audit of a plan: choose the run, fix the thresholds, run the trials, compare.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dpsgd_privacy::mechanism::{Mechanism, PhaseConfig, RunConfig};
use dpsgd_privacy::{Adversary, normal};
use dpsgd_train::{ModelError, Plan, PlanConfig};
use rayon::prelude::*;

use crate::AuditError;
use crate::attack::{Attack, Counts, thresholds};
use crate::checks::{self, Check};
use crate::claim::Claim;
use crate::level;
use crate::probe::Probe;
use crate::shortened::Shortened;
use crate::subject::Subject;
use crate::tally::Tally;
use crate::trial::{Scratch, Server, Trials};

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effort {
    /// This many trials on each of the two data sets.
    Trials(u64),
    /// This long, the fewest trials excepted: the clock ends them, however slow they turn out to be.
    Time(Duration),
}

/// How a plan is audited.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How much is run.
    pub effort: Effort,
    /// Keys that can be repeated, for tests; from the operating system otherwise.
    pub seed: Option<u64>,
    /// Threads; the result does not depend on it.
    pub threads: usize,
    /// δ at which ε is stated.
    pub delta: f64,
}

/// The fewest trials on each data set.
pub const FEWEST: u64 = 100;
/// The most.
const MOST: u64 = 5_000_000;
/// Trials of the pilot that fixes the thresholds, on both data sets together.
const PILOT: u64 = 1000;
/// Keys of the pilot and of measuring the time are not those of trials that count.
const ASIDE: (u64, u64) = (1 << 60, 1 << 61);
/// The work is cut into this many pieces whatever the threads, so that sums do not depend on them.
const PIECES: u64 = 64;

/// What an audit found.
#[derive(Debug)]
pub struct Audit {
    /// The mechanism as configured.
    pub configured: Mechanism,
    /// The mechanism that was run, and that the claims below are for.
    pub audited: Mechanism,
    /// N of the data that were run, which a mechanism with Poisson or allocated batches does not say.
    pub samples: usize,
    /// The data in a sentence.
    pub data: String,
    /// Trials on each of the two data sets.
    pub trials: u64,
    /// δ.
    pub delta: f64,
    /// The attacks, A₁ first.
    pub attacks: Vec<Attack>,
    /// The named checks.
    pub checks: Vec<Check>,
    /// How long the trials took.
    pub wall: Duration,
}

impl Audit {
    /// Whether anything contradicts the claims.
    pub fn contradicts(&self) -> bool {
        self.attacks.iter().any(Attack::contradicts) || self.checks.iter().any(Check::failed)
    }

    /// The check of a name.
    pub fn check(&self, name: &str) -> Option<&Check> {
        self.checks.iter().find(|check| check.name == name)
    }
}

/// Audits a plan.
///
/// # Guarantee
/// If the trainer does what the plan says, [`Audit::contradicts`] is true with probability at most
/// [`level::WHOLE`]. The thresholds are fixed before the first trial that counts; trials are independent, each
/// with a key of its own. Their number is fixed before as well, or is where the clock ends them: nobody looks at
/// an outcome before the last trial.
pub fn audit(plan: &Plan, options: &Options) -> Result<Audit, AuditError> {
    audit_against(plan, options, Server::Silent)
}

/// [`audit`] of every phase of a plan, with the gradients of the trials computed by a subject.
///
/// # Guarantee
/// That of [`audit_phases`], for the trainer together with the way in which the subject computes.
/// The named checks of clipping, groups, threads and ledger are about the trainer alone.
pub fn audit_model<S: Subject>(
    plan: &Plan,
    options: &Options,
    subject: &S,
) -> Result<Vec<Audit>, AuditError> {
    each_phase(plan, options, |plan, options| run(plan, options, Server::Silent, Some(subject)))
}

/// [`audit`] of a client whose global models come from a server, which may be an adversary.
///
/// # Guarantee
/// That of [`audit`]. The claim is the same: models are a function of what an observer of the updates knows, so
/// the guarantee of Algorithm 1 does not depend on who chooses them.
pub fn audit_against(plan: &Plan, options: &Options, server: Server) -> Result<Audit, AuditError> {
    run(plan, options, server, None::<&OurOwn>)
}

/// No subject: the trials use our own model.
struct OurOwn;

impl Subject for OurOwn {
    type Model = Probe<fn(u32, &[f32], &mut [f32])>;

    fn model(&self, dimension: usize, _: &[f32]) -> Result<Arc<Self::Model>, ModelError> {
        Ok(Probe::new(dimension, 0, |_, _, _| {}))
    }

    fn name(&self) -> String {
        String::new()
    }
}

fn run<S: Subject>(
    plan: &Plan,
    options: &Options,
    server: Server,
    subject: Option<&S>,
) -> Result<Audit, AuditError> {
    let began = Instant::now();
    let mechanism = plan.mechanism();
    if mechanism.phases().len() > 1 {
        return Err(AuditError::Phases(mechanism.phases().len()));
    }
    let config = plan.config();
    let expected = plan.divisor(&plan.position(0));
    let shorten = |mu: f64| Ok::<_, AuditError>(Shortened::of(mechanism, expected, mu)?);
    if let Some(name) = checks::groups::moves_without_gradient(config, &shorten(1.0)?)? {
        return Err(AuditError::MovesWithoutGradient(name));
    }
    let begin = |mu: f64| Trials::new(shorten(mu)?, config, options.seed, server, subject);
    let (trials, count, pilot) = match options.effort {
        Effort::Trials(count) => (begin(2.5)?, count, PILOT),
        Effort::Time(time) => {
            let round = time_of_round(&begin(1.0)?, options.threads)?;
            let all = time.as_secs_f64() / round;
            let count = |rounds: u64| (0.5 * all / rounds as f64) as u64;
            let candidates = [0.5, 0.7, 1.0, 1.4, 2.0, 2.5, 3.0].map(|mu| {
                let short = shorten(mu)?;
                Ok((expected_slack(mu, count(short.rounds()).max(1)), short))
            });
            let candidates = candidates.into_iter().collect::<Result<Vec<_>, AuditError>>()?;
            let least = candidates.iter().map(|(slack, _)| *slack).fold(f64::INFINITY, f64::min);
            // Nearly as close with a larger µ shows more of ε.
            let mut good = candidates.into_iter().rev().filter(|(slack, _)| *slack <= 1.1 * least);
            let short = match good.next() {
                Some((_, short)) => short,
                None => shorten(2.0)?,
            };
            // A tenth of the time for the pilot.
            let pilot = (count(short.rounds()) / 5).clamp(FEWEST, PILOT);
            let count = count(short.rounds()).clamp(10 * FEWEST, MOST);
            (Trials::new(short, config, options.seed, server, subject)?, count, pilot)
        }
    };
    if count < FEWEST {
        return Err(AuditError::Trials { given: count, least: FEWEST });
    }
    let pilot = pieces(options.threads, 0..pilot.min(count), |range| {
        let (mut scratch, mut tally) = (Scratch::default(), Tally::new(trials.short.samples));
        range
            .map(|number| trials.run(ASIDE.0 + number, &mut scratch, &mut tally))
            .collect::<Result<Vec<_>, _>>()
    })?;
    let known = thresholds(pilot.iter().flatten().map(|statistics| statistics.known).collect());
    let blind = thresholds(pilot.iter().flatten().map(|statistics| statistics.blind).collect());
    let empty = Sums {
        tally: Tally::new(trials.short.samples),
        known: Counts::new(known),
        blind: Counts::new(blind),
    };
    let piece = |range: std::ops::Range<u64>| {
        let (mut scratch, mut sums) = (Scratch::default(), empty.clone());
        for number in range {
            let statistics = trials.run(number, &mut scratch, &mut sums.tally)?;
            sums.known.see(number.is_multiple_of(2), statistics.known);
            sums.blind.see(number.is_multiple_of(2), statistics.blind);
        }
        Ok(sums)
    };
    let mut sums = empty.clone();
    let mut done = 0;
    while done < 2 * count && !(done >= 2 * FEWEST && options.effort.is_over(began)) {
        let end = (done + options.effort.batch(count)).min(2 * count);
        pieces(options.threads, done..end, piece)?.iter().for_each(|part| sums.merge(part));
        done = end;
    }
    let (count, wall) = (done / 2, began.elapsed());
    let attacks = attacks(&trials, &sums, options.delta)?;
    let short = &trials.short;
    Ok(Audit {
        configured: mechanism.clone(),
        audited: short.mechanism.clone(),
        samples: short.samples,
        data: match subject {
            Some(subject) => {
                format!("{}; {} computes the gradients", trials.pair.described(), subject.name())
            }
            None => trials.pair.described(),
        },
        trials: count,
        delta: options.delta,
        attacks,
        checks: named_checks(config, short, &sums.tally, options.delta)?,
        wall,
    })
}

impl Effort {
    fn is_over(self, began: Instant) -> bool {
        matches!(self, Effort::Time(time) if began.elapsed() >= time)
    }

    /// The trials between two looks at the clock, of `count` on each of the two data sets; an even number.
    fn batch(self, count: u64) -> u64 {
        match self {
            Effort::Trials(_) => 2 * count,
            Effort::Time(_) => 2 * (count / 100).max(FEWEST / 2),
        }
    }
}

/// Audits every phase of a plan as a run of its own, each for an equal part of the time.
///
/// # Guarantee
/// That of [`audit`] for each phase: with several phases a right implementation is contradicted with
/// probability at most their number times [`level::WHOLE`]. What happens between two phases is not looked at.
pub fn audit_phases(plan: &Plan, options: &Options) -> Result<Vec<Audit>, AuditError> {
    each_phase(plan, options, audit)
}

fn each_phase(
    plan: &Plan,
    options: &Options,
    audit: impl Fn(&Plan, &Options) -> Result<Audit, AuditError>,
) -> Result<Vec<Audit>, AuditError> {
    let config = plan.config();
    let run = config.mechanism.config();
    let phases = run.phases.len();
    let effort = match options.effort {
        Effort::Time(time) => Effort::Time(time / phases as u32),
        Effort::Trials(count) => Effort::Trials(count),
    };
    let alone = |(phase, divisor): (&PhaseConfig, &Option<f64>)| {
        let mechanism = RunConfig { phases: vec![*phase], ..run.clone() }.check()?;
        let config = PlanConfig { mechanism, divisors: vec![*divisor], ..config.clone() };
        audit(&config.check()?, &Options { effort, ..*options })
    };
    run.phases.iter().zip(&config.divisors).map(alone).collect()
}

/// What the trials of a thread add up to.
#[derive(Clone)]
struct Sums {
    tally: Tally,
    known: Counts,
    blind: Counts,
}

impl Sums {
    fn merge(&mut self, other: &Self) {
        self.tally.merge(&other.tally);
        self.known.merge(&other.known);
        self.blind.merge(&other.blind);
    }
}

/// Runs the numbers of a range in pieces, on several threads; one thread is the caller's own.
fn pieces<T: Send>(
    threads: usize,
    range: std::ops::Range<u64>,
    run: impl Fn(std::ops::Range<u64>) -> Result<T, AuditError> + Sync,
) -> Result<Vec<T>, AuditError> {
    let length = range.end - range.start;
    let cut = |piece: u64| range.start + length * piece / PIECES;
    let piece = |piece: u64| run(cut(piece)..cut(piece + 1));
    if threads <= 1 {
        return (0..PIECES).map(piece).collect();
    }
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|error| AuditError::Threads(threads, error.to_string()))?;
    pool.install(|| (0..PIECES).into_par_iter().map(piece).collect())
}

/// Seconds a round of the trials takes, with all threads at work.
fn time_of_round<S: Subject>(trials: &Trials<S>, threads: usize) -> Result<f64, AuditError> {
    let mut number = PIECES;
    loop {
        let began = Instant::now();
        pieces(threads, ASIDE.1..ASIDE.1 + number, |range| {
            let (mut scratch, mut tally) = (Scratch::default(), Tally::new(trials.short.samples));
            range.into_iter().try_for_each(|number| trials.run(number, &mut scratch, &mut tally).map(drop))
        })?;
        // Half a second, so that the caches are warm and the clock is fine enough.
        let time = began.elapsed().as_secs_f64();
        if time > 0.5 || number > 100_000 {
            return Ok(time / (number * trials.short.rounds()) as f64);
        }
        number *= 2;
    }
}

/// By which share n trials fall short of the µ of a Gaussian mechanism, about: twice the limit's distance in
/// α, in units of µ.
fn expected_slack(mu: f64, n: u64) -> f64 {
    let distance = -normal::quantile(level::of_limit());
    let alpha = normal::cdf(-0.5 * mu);
    2.0 * distance * (alpha * (1.0 - alpha) / n as f64).sqrt() / (normal::density(0.5 * mu) * mu)
}

fn attacks<S: Subject>(trials: &Trials<S>, sums: &Sums, delta: f64) -> Result<Vec<Attack>, AuditError> {
    let mechanism = &trials.short.mechanism;
    let known = Claim::of(mechanism, Adversary::A1, delta)?;
    let mut attacks = vec![Attack::new(Adversary::A1, &known, &sums.known, delta)];
    // What holds for A₁ holds for A₀.
    let blind = Claim::of(mechanism, Adversary::A0, delta).unwrap_or(known);
    attacks.push(Attack::new(Adversary::A0, &blind, &sums.blind, delta));
    Ok(attacks)
}

fn named_checks(
    config: &PlanConfig,
    short: &Shortened,
    tally: &Tally,
    delta: f64,
) -> Result<Vec<Check>, AuditError> {
    Ok(vec![
        checks::noise(tally),
        checks::independence(tally),
        checks::sampling(short, tally),
        checks::filter(short, tally),
        checks::clipping(config, short)?,
        checks::groups(config, short)?,
        checks::threads(config, short)?,
        checks::ledger(config, short, delta)?,
    ])
}
