//! The smallest noise, the longest run or the largest batch that meets a target.

use crate::adversary::{Adversary, curve};
use crate::error::{PrivacyError, require};
use crate::interval::Interval;
use crate::mechanism::{FixedSizes, Length, Mechanism, NoiseScale, RunConfig, SIGMA_RANGE};

/// What the run must satisfy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// (ε, δ)-DP.
    Epsilon {
        /// ε.
        epsilon: f64,
        /// δ.
        delta: f64,
    },
    /// f ≥ G_µ on the range of
    /// [`Curve::mu_on_default_range`](crate::curve::Curve::mu_on_default_range).
    Mu(f64),
}

/// A setting that meets the target, with the certified value it reaches.
#[derive(Clone, Debug)]
pub struct Calibrated<T> {
    /// What was solved for.
    pub value: T,
    /// The certified ε (or µ) of the run with that value; the upper end meets the target.
    pub reached: Interval,
    /// The run with that value.
    pub mechanism: Mechanism,
    /// ln of the target over the certified value.
    room: f64,
}

impl Target {
    fn check(self) -> Result<(), PrivacyError> {
        match self {
            Target::Epsilon { epsilon, delta } => {
                require(epsilon > 0.0 && epsilon.is_finite(), "target epsilon", epsilon, "a number above 0")?;
                require(delta > 0.0 && delta < 1.0, "delta", delta, "above 0 and below 1")
            }
            Target::Mu(mu) => require(mu > 0.0 && mu.is_finite(), "target mu", mu, "a number above 0"),
        }
    }

    fn bound(self) -> f64 {
        match self {
            Target::Epsilon { epsilon, .. } => epsilon,
            Target::Mu(mu) => mu,
        }
    }

    fn reached(self, mechanism: &Mechanism, adversary: Adversary) -> Result<Interval, PrivacyError> {
        let curve = curve(mechanism, adversary)?;
        match self {
            Target::Epsilon { delta, .. } => curve.epsilon(delta),
            Target::Mu(_) => Ok(curve.mu_on_default_range()?.0),
        }
    }
}

/// Checks a configuration, accounts for it, and tests whether it meets the target.
fn attempt<T>(
    value: T,
    config: &RunConfig,
    adversary: Adversary,
    target: Target,
) -> Result<(bool, Calibrated<T>), PrivacyError> {
    let mechanism = config.check()?;
    let reached = target.reached(&mechanism, adversary)?;
    let room = -gap(target, reached.upper);
    Ok((reached.upper <= target.bound(), Calibrated { value, reached, mechanism, room }))
}

/// The smallest σ (the same in every phase) that meets the target, to nine digits, rounded up.
///
/// # Guarantee
/// The certified upper end with the returned σ is at most the target: accounting for the returned
/// mechanism gives the same interval again.
///
/// ```
/// use dpsgd_privacy::{adversary::Adversary, calibrate::*, mechanism::*};
/// let run = RunConfig::single(PhaseConfig {
///     sampling: Sampling::Subsample { samples: 60_000, groups: 1024, group_size: 1 },
///     length: Length::Epochs(15),
///     noise: NoiseScale::Sigma(1.0),
///     filtered: false,
/// });
/// let target = Target::Epsilon { epsilon: 3.0, delta: 1e-5 };
/// let found = sigma(&run, Adversary::A0, target)?;
/// assert!(found.reached.upper <= 3.0 && found.reached.lower > 2.9999);
/// # Ok::<(), dpsgd_privacy::PrivacyError>(())
/// ```
pub fn sigma(
    config: &RunConfig,
    adversary: Adversary,
    target: Target,
) -> Result<Calibrated<f64>, PrivacyError> {
    target.check()?;
    let with = |sigma: f64| {
        let mut config = config.clone();
        for phase in &mut config.phases {
            phase.noise = NoiseScale::Sigma(sigma);
        }
        attempt(sigma, &config, adversary, target)
    };
    let (smallest, largest) = SIGMA_RANGE;
    let gap = |tried: &(bool, Calibrated<f64>)| gap(target, tried.1.reached.upper);
    // ε falls at least like 1/σ where it is large and about like 1/σ² where it is small: from one value the
    // next guess is close, and goes a little too far, so that two or three values bracket the answer.
    let mut tried = with(1.0)?;
    let mut low: Option<(f64, f64)> = None;
    let mut high: Option<(f64, f64)> = None;
    let mut best = None;
    loop {
        let (at, value) = (tried.1.value, gap(&tried));
        if tried.0 {
            high = Some((at, value));
            best = Some(tried);
        } else {
            low = Some((at, value));
        }
        if low.is_some() && high.is_some() {
            break;
        }
        let further = 1.05 * (0.8 * value.abs()).clamp(0.05, 3.0).exp();
        let next = if value > 0.0 { at * further } else { at / further };
        if at == largest && value > 0.0 {
            return Err(PrivacyError::Unreachable {
                what: "sigma",
                why: format!("σ = {largest} still gives {:.6}", tried_value(low, target)),
            });
        }
        if at == smallest && value <= 0.0 {
            break;
        }
        tried = with(next.clamp(smallest, largest))?;
    }
    let (Some(mut high), Some(mut best)) = (high, best) else {
        return Err(PrivacyError::Unreachable { what: "sigma", why: "no σ was found".to_string() });
    };
    if let Some(low) = low {
        narrow(low, &mut high, &mut best, gap, with)?;
    }
    // Nine digits, rounded up, so that the printed value is the value that was certified.
    let rounded = with(nine_digits_up(high.0).min(largest))?;
    Ok(if rounded.0 { rounded.1 } else { best.1 })
}

/// How far a value is above the target, in logarithms; an infinite one is far, not infinitely far.
fn gap(target: Target, reached: f64) -> f64 {
    (reached / target.bound()).ln().clamp(-30.0, 30.0)
}

fn tried_value(low: Option<(f64, f64)>, target: Target) -> f64 {
    low.map_or(f64::INFINITY, |(_, gap)| gap.exp() * target.bound())
}

/// A number with nine digits that is at least this one, up to the last bit.
fn nine_digits_up(value: f64) -> f64 {
    let decimals = 8 - value.log10().floor() as i32;
    let scale = 10_f64.powi(decimals.abs());
    // A power of ten is exact and its inverse is not: dividing gives 0.711842982, multiplying
    // 0.7118429820000001.
    if decimals >= 0 { (value * scale).ceil() / scale } else { (value / scale).ceil() * scale }
}

/// The ninth digit of a number.
fn digit_of(value: f64) -> f64 {
    10_f64.powf(value.log10().floor() - 8.0)
}

/// Narrows a bracket of σ to less than the ninth digit: false position on ln ε over ln σ, aiming a little
/// beyond the root so that both ends move.
fn narrow(
    low: (f64, f64),
    high: &mut (f64, f64),
    best: &mut (bool, Calibrated<f64>),
    gap: impl Fn(&(bool, Calibrated<f64>)) -> f64,
    with: impl Fn(f64) -> Result<(bool, Calibrated<f64>), PrivacyError>,
) -> Result<(), PrivacyError> {
    let mut low = low;
    for step in 0..80 {
        let small = 0.25 * digit_of(high.0);
        if high.0 - low.0 <= 2.0 * small {
            break;
        }
        let share = low.1 / (low.1 - high.1);
        let root = (low.0.ln() + share * (high.0.ln() - low.0.ln())).exp();
        let middle = (low.0 * high.0).sqrt();
        // A bracket that does not shrink fast (a jump, or an infinite value) is halved now and then.
        let next = if step % 4 == 3 || !root.is_finite() { middle } else { root };
        // Beyond the root by as much as false position is off: the square of the bracket, or the last digit.
        let width = (high.0 / low.0).ln();
        let beyond = small.max(0.02 * width * width * high.0);
        let next = if step % 2 == 0 { next + beyond } else { next - beyond };
        let tried = with(next.clamp(low.0 + small, high.0 - small))?;
        let at = (tried.1.value, gap(&tried));
        if tried.0 {
            *high = at;
            *best = tried;
        } else {
            low = at;
        }
    }
    Ok(())
}

/// The largest number of epochs of a single-phase run that meets the target.
pub fn epochs(
    config: &RunConfig,
    adversary: Adversary,
    target: Target,
) -> Result<Calibrated<u64>, PrivacyError> {
    target.check()?;
    single_phase(config)?;
    largest("epochs", 1 << 40, |epochs| {
        let mut config = config.clone();
        config.phases[0].length = Length::Epochs(epochs);
        attempt(epochs, &config, adversary, target)
    })
}

/// The largest number of groups per round (at a fixed number of epochs) that meets the target.
///
/// ε is not monotone in m: B = ⌊N/(ms)⌋ is rounded, so a larger m may use fewer samples in an epoch. It is
/// monotone among the m with the same B, since fewer groups are a part of more. So values of B are tried from
/// 1 upwards, each at its smallest m; the first that meets the target holds the largest m of all, and that is
/// the answer. If 16 values do not, or the target is far off, the answer is the largest m found from the other
/// side: the end of the first stretch of m from 1 upwards that meets the target, and whatever meets it within
/// the next 16 values of B.
pub fn groups(
    config: &RunConfig,
    adversary: Adversary,
    target: Target,
) -> Result<Calibrated<u64>, PrivacyError> {
    target.check()?;
    single_phase(config)?;
    let sampling = config.phases[0].sampling;
    let Some(FixedSizes { samples, group_size, .. }) = sampling.sizes() else {
        return Err(PrivacyError::Unsupported {
            what: format!("solving for groups with {} sampling", sampling.name()),
            why: "its batch is set by the rate, a public constant; solve for sigma or epochs".to_string(),
        });
    };
    let most = samples / group_size.max(1);
    let with = |value: u64| {
        let mut config = config.clone();
        config.phases[0].sampling = sampling.with_groups(value)?;
        attempt(value, &config, adversary, target)
    };
    // The smallest m with B rounds, and the largest.
    let stretch = |rounds: u64| ((most / (rounds + 1) + 1), most / rounds.max(1));
    let first = with(1)?;
    let mut last = most;
    for _ in 0..MOST_STRETCHES {
        if last <= 1 {
            break;
        }
        let start = stretch(most / last).0.max(2);
        let tried = with(start)?;
        if tried.0 {
            return largest_between(tried.1, last + 1, with);
        }
        last = start - 1;
        // An epoch uses at least half of the samples, so rounding cannot make up for this much.
        if tried.1.room < -HOPELESS.ln() {
            break;
        }
    }
    if first.0 {
        let mut best = largest_between(first.1, last + 1, with)?;
        // Beyond the first miss, a smaller B may again use fewer samples.
        let mut rounds = most / best.value;
        for _ in 0..MOST_STRETCHES {
            rounds -= 1;
            let (start, end) = stretch(rounds.max(1));
            if rounds == 0 || start > last {
                break;
            }
            let tried = with(start)?;
            if tried.0 {
                best = largest_between(tried.1, end + 1, with)?;
            }
        }
        return Ok(best);
    }
    Err(PrivacyError::Unreachable {
        what: "groups",
        why: if last <= 1 {
            format!("every number of groups was covered; groups = 1 gives {:.6}", first.1.reached.upper)
        } else {
            format!(
                "groups = 1 already gives {:.6}, and none from {} to {most} does",
                first.1.reached.upper,
                last + 1
            )
        },
    })
}

/// The most values of B that [`groups`] tries from either end.
const MOST_STRETCHES: usize = 16;
/// How many times the target a value must be for [`groups`] to give up on the largest m.
const HOPELESS: f64 = 4.0;

fn single_phase(config: &RunConfig) -> Result<(), PrivacyError> {
    if config.phases.len() == 1 {
        return Ok(());
    }
    Err(PrivacyError::Unsupported {
        what: "solving for one value of a run with several phases".to_string(),
        why: "it is unclear which phase may change; solve for sigma, or give a single phase".to_string(),
    })
}

/// The largest value up to `most` that meets the target, provided that 1 meets it.
fn largest(
    what: &'static str,
    most: u64,
    with: impl Fn(u64) -> Result<(bool, Calibrated<u64>), PrivacyError>,
) -> Result<Calibrated<u64>, PrivacyError> {
    let first = with(1)?;
    if !first.0 {
        return Err(PrivacyError::Unreachable {
            what,
            why: format!("{what} = 1 already gives {:.6}", first.1.reached.upper),
        });
    }
    largest_between(first.1, most.saturating_add(1), with)
}

/// The largest value from that of `best`, which meets the target, to below `beyond`, where meeting it turns
/// into missing it once: by steps that grow, then by false position on the logarithms.
fn largest_between(
    best: Calibrated<u64>,
    beyond: u64,
    with: impl Fn(u64) -> Result<(bool, Calibrated<u64>), PrivacyError>,
) -> Result<Calibrated<u64>, PrivacyError> {
    let mut best = best;
    let mut high = beyond;
    // The value that was reached at `high`; none where nothing was computed there.
    let mut missed: Option<f64> = None;
    let mut step = 0;
    while high - best.value > 1 {
        let low = best.value;
        let reached = best.reached.upper;
        let guess = match missed {
            // ε grows at least like the root of the number of rounds, so this is rarely too near.
            None => (low as f64 * (2.0 * best.room + 0.2).exp().clamp(1.2, 64.0)).ceil() as u64,
            Some(_) if step % 3 == 2 => low + (high - low) / 2,
            Some(value) => {
                let share = (best.room / (value / reached).ln()).clamp(0.0, 1.0);
                let at = (low as f64).ln() + share * ((high as f64).ln() - (low as f64).ln());
                at.exp().round() as u64
            }
        };
        step += 1;
        let guess = guess.clamp(low + 1, high - 1);
        match with(guess) {
            Ok((true, found)) => best = found,
            Ok((false, found)) => (high, missed) = (guess, Some(found.reached.upper)),
            // Beyond the longest allowed run.
            Err(PrivacyError::Mechanism(_)) => high = guess,
            Err(error) => return Err(error),
        }
    }
    Ok(best)
}
