//! The smallest noise, the longest run or the largest batch that meets a target.

use crate::adversary::{Adversary, curve};
use crate::error::{PrivacyError, require};
use crate::interval::Interval;
use crate::mechanism::{Length, Mechanism, Noise, RunConfig, SIGMA_RANGE, Sampling};

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
    /// f ≥ G_µ on the default range of [`Curve::mu_on_default_range`](crate::curve::Curve::mu_on_default_range).
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

/// Checks a configuration, accounts for it and says whether it meets the target.
fn attempt<T>(
    value: T,
    config: &RunConfig,
    adversary: Adversary,
    target: Target,
) -> Result<(bool, Calibrated<T>), PrivacyError> {
    let mechanism = config.check()?;
    let reached = target.reached(&mechanism, adversary)?;
    Ok((reached.upper <= target.bound(), Calibrated { value, reached, mechanism }))
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
///     noise: Noise::Sigma(1.0),
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
            phase.noise = Noise::Sigma(sigma);
        }
        attempt(sigma, &config, adversary, target)
    };
    let (smallest, largest) = SIGMA_RANGE;
    let (mut low, mut high) = (smallest, 1.0);
    let mut best = with(high)?;
    while !best.0 {
        low = high;
        high *= 2.0;
        if high > largest {
            return Err(PrivacyError::Unreachable {
                what: "sigma",
                why: format!("σ = {low} still gives {:.6}", best.1.reached.upper),
            });
        }
        best = with(high)?;
    }
    if low == smallest {
        // The first guess was enough; walk down instead of starting from the far end of the range,
        // where accounting is slow and the answer never lies.
        low = 0.5 * high;
        while low >= smallest {
            let lower = with(low)?;
            if !lower.0 {
                break;
            }
            (high, best) = (low, lower);
            low *= 0.5;
        }
        low = low.max(smallest);
    }
    while high - low > 2e-10 * high {
        let middle = 0.5 * (low + high);
        let tried = with(middle)?;
        if tried.0 {
            (high, best) = (middle, tried);
        } else {
            low = middle;
        }
    }
    // Nine digits, rounded up, so that the printed value is the value that was certified.
    let digit = 10_f64.powf(high.log10().floor() - 8.0);
    let rounded = with(((high / digit).ceil() * digit).min(largest))?;
    Ok(if rounded.0 { rounded.1 } else { best.1 })
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

/// The largest number of groups a round (at a fixed number of epochs) that meets the target.
///
/// Against A₀ the loss grows with the batch; rounding of ⌊N/(ms)⌋ makes it step a little, and the
/// answer is the end of the first stretch that meets the target, found by bisection. Against A₁ it
/// may not grow at all, and then the answer is the largest batch there is.
pub fn groups(
    config: &RunConfig,
    adversary: Adversary,
    target: Target,
) -> Result<Calibrated<u64>, PrivacyError> {
    target.check()?;
    single_phase(config)?;
    let most = match config.phases[0].sampling {
        Sampling::Subsample { samples, group_size, .. } | Sampling::Shuffle { samples, group_size, .. } => {
            samples / group_size.max(1)
        }
        Sampling::Poisson { .. } => {
            return Err(PrivacyError::Unsupported {
                what: "solving for groups with poisson sampling".to_string(),
                why: "its batch is set by the rate, a public constant; solve for sigma or epochs".to_string(),
            });
        }
    };
    largest("groups", most, |value| {
        let mut config = config.clone();
        match &mut config.phases[0].sampling {
            Sampling::Subsample { groups, .. } | Sampling::Shuffle { groups, .. } => *groups = value,
            Sampling::Poisson { .. } => {}
        }
        attempt(value, &config, adversary, target)
    })
}

fn single_phase(config: &RunConfig) -> Result<(), PrivacyError> {
    if config.phases.len() == 1 {
        return Ok(());
    }
    Err(PrivacyError::Unsupported {
        what: "solving for one value of a run with several phases".to_string(),
        why: "it is not said which phase may change; solve for sigma, or give one phase".to_string(),
    })
}

/// The largest value up to `most` that meets the target, where 1 does, by doubling and bisection.
fn largest(
    what: &'static str,
    most: u64,
    with: impl Fn(u64) -> Result<(bool, Calibrated<u64>), PrivacyError>,
) -> Result<Calibrated<u64>, PrivacyError> {
    let first = with(1)?;
    if !first.0 {
        // The whole range may still be fine at its other end (A₁ with large batches).
        if let Ok((true, at_most)) = with(most) {
            return Ok(at_most);
        }
        return Err(PrivacyError::Unreachable {
            what,
            why: format!("{what} = 1 already gives {:.6}", first.1.reached.upper),
        });
    }
    let mut best = first.1;
    let (mut low, mut high) = (1, 2);
    while high <= most {
        match with(high) {
            Ok((true, found)) => {
                best = found;
                low = high;
                high = high.saturating_mul(2);
            }
            Ok((false, _)) => break,
            // Past the largest allowed run length.
            Err(PrivacyError::Mechanism(_)) => break,
            Err(error) => return Err(error),
        }
    }
    let mut high = high.min(most.saturating_add(1));
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        match with(middle) {
            Ok((true, found)) => (low, best) = (middle, found),
            Ok((false, _)) | Err(PrivacyError::Mechanism(_)) => high = middle,
            Err(error) => return Err(error),
        }
    }
    Ok(best)
}
