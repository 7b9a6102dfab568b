//! What no analysis of shuffling can beat: a lower bound on ε for adversary A₀.
//!
//! Let one sample's gradient point against all others. An epoch then amounts to choosing one round
//! t out of B, and its updates are N(a·e_t, z²I) for d and N(b·e_t, z²I) for d' in units of C (Chua
//! et al. 2024, "How Private are DP-SGD Implementations?": a = 2, b = 1 when the sample is zeroed
//! out, the add/remove form; a = 2, b = 0 when it is substituted by one that points with the
//! others). Revealing only the largest coordinate is post-processing; its law has a closed form,
//! and epochs are composed on a grid that rounds δ down. So the true δ of a shuffled run is at
//! least what is returned here, whatever a future theorem says.

use crate::curve::epsilon_of;
use crate::error::{PrivacyError, require};
use crate::interval::Interval;
use crate::loss::grid::{Discrete, Grid, SOLVED};
use crate::normal::ln_cdf;

/// The pair of mixtures over the B rounds of an epoch, composed over epochs.
#[derive(Debug)]
pub struct ShuffleBound {
    grid: Grid,
}

/// The largest coordinate of a vector of B normal variables, one of them shifted.
struct Largest {
    rounds: f64,
    noise: f64,
}

impl Largest {
    /// Pr[max > x] when one mean is `shift`.
    fn tail(&self, x: f64, shift: f64) -> f64 {
        -(ln_cdf((x - shift) / self.noise) + (self.rounds - 1.0) * ln_cdf(x / self.noise)).exp_m1()
    }
}

impl ShuffleBound {
    /// `rounds` per epoch, `epochs` with a fresh permutation each, noise multiplier `z` (noise Cz), and the
    /// two shifts in units of C.
    ///
    /// # Guarantee
    /// [`epsilon`](Self::epsilon) is a lower bound on the ε of that pair at the given δ.
    pub fn new(rounds: u64, epochs: u64, z: f64, shifts: (f64, f64)) -> Result<Self, PrivacyError> {
        require(rounds >= 1, "rounds", rounds as f64, "at least 1")?;
        require(epochs >= 1, "epochs", epochs as f64, "at least 1")?;
        require(z.is_finite() && z >= 1e-2, "z", z, "a number of at least 0.01")?;
        let (a, b) = shifts;
        require(a > b && b >= 0.0 && a <= 2.0, "shifts", a, "2 ≥ a > b ≥ 0")?;
        let largest = Largest { rounds: rounds as f64, noise: z };
        // The loss of one epoch spreads over a few (a − b)/z, which gets CELLS grid points.
        let reach = (a - b) * (a + 12.0 * z) / (z * z);
        let step = 2.0 * reach / CELLS;
        Ok(Self { grid: Grid::new(step, vec![cells(&largest, a, b, step, epochs)]) })
    }

    /// A lower bound on δ(ε).
    pub fn delta(&self, epsilon: f64) -> f64 {
        self.grid.delta_lower(epsilon)
    }

    /// A lower bound on ε(δ): no analysis can show less.
    pub fn epsilon(&self, delta: f64) -> Result<f64, PrivacyError> {
        require(delta > 0.0 && delta < 1.0, "delta", delta, "above 0 and below 1")?;
        Ok(epsilon_of(&|e| Ok(Interval::exact(self.delta(e))), delta)?.lower)
    }
}

/// Grid points on the range of one epoch's loss.
const CELLS: f64 = 6000.0;

/// Cells of x whose loss ln P(cell)/Q(cell) lies on the grid, or is rounded down to it.
fn cells(largest: &Largest, a: f64, b: f64, step: f64, epochs: u64) -> Discrete {
    let law = |left: f64, right: f64| {
        // The smaller of the two equivalent differences keeps more digits.
        let part = |shift: f64| largest.tail(left, shift) - largest.tail(right, shift);
        (part(a), part(b))
    };
    let loss = |left: f64, right: f64| {
        let (p, q) = law(left, right);
        if p > 0.0 && q > 0.0 { (p / q).ln() } else { f64::NAN }
    };
    let z = largest.noise;
    let (mut x, mut end) = (a, a);
    while largest.tail(x, a) < 1.0 - 1e-15 {
        x -= 0.1 * z;
    }
    while largest.tail(end, a) > 1e-40 {
        end += 0.1 * z;
    }
    let mut masses: Vec<(i64, f64)> = Vec::new();
    let mut width = 1e-3 * z;
    while x < end {
        // The slope of the loss here, and from it the cell that reaches the next grid point.
        let near = 1e-3 * z;
        let (first, second) = (loss(x, x + near), loss(x + near, x + 2.0 * near));
        let slope = (second - first) / near;
        if !(slope > 1e-9 && first.is_finite()) {
            let (p, q) = law(x, x + near);
            if p > 0.0 && q > 0.0 {
                masses.push((((p / q).ln() / step).floor() as i64, p));
            }
            x += near;
            continue;
        }
        let start = first - 0.5 * near * slope;
        let target = (start / step + 0.25).ceil();
        let wanted = target * step;
        let mut right = x + (2.0 * (wanted - start) / slope).clamp(1e-6 * z, 0.5 * z);
        let mut solved = false;
        for _ in 0..12 {
            let gap = wanted - loss(x, right);
            solved = gap.abs() < SOLVED * step;
            if solved || !gap.is_finite() {
                break;
            }
            right = (right + 2.0 * gap / slope).clamp(x + 1e-6 * z, x + 4.0 * width.max(1e-3 * z));
        }
        let (p, q) = law(x, right);
        if p > 0.0 && q > 0.0 {
            let at = if solved { target as i64 } else { ((p / q).ln() / step).floor() as i64 };
            masses.push((at, p));
        }
        width = right - x;
        x = right;
    }
    let first = masses.iter().map(|m| m.0).min().unwrap_or(0);
    let last = masses.iter().map(|m| m.0).max().unwrap_or(0);
    let mut mass = vec![0.0; (last - first + 1).clamp(1, 1 << 22) as usize];
    for (at, p) in masses {
        if let Some(slot) = mass.get_mut((at - first) as usize) {
            *slot += p;
        }
    }
    Discrete { times: epochs, first, mass }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The block `sampling_schemes` of the reference values holds lower bounds from the same statistic on
    /// coarser cells: ours must not be below them by more than their rounding, nor far above.
    #[test]
    fn is_at_least_the_reference_lower_bounds() {
        for (z, epochs, reference) in [
            (1.0, 1, 3.761_182_501_912_117),
            (1.0, 100, 20.964_926_817_242_15),
            (0.6, 1, 7.999_882_698_059_082),
            (0.6, 100, 154.129_659_505_863_9),
        ] {
            let bound = ShuffleBound::new(234, epochs, z, (2.0, 1.0)).unwrap();
            let epsilon = bound.epsilon(1e-5).unwrap();
            assert!(epsilon > reference * (1.0 - 2e-4), "{z} {epochs}: {epsilon} {reference}");
            assert!(epsilon < reference * 1.005, "{z} {epochs}: {epsilon} {reference}");
        }
    }

    /// A straight discretisation of the largest coordinate (400,000 cells, losses rounded down and up to
    /// multiples of 1e-4, plain FFT; numpy) puts the pair's own ε at z = 1, 100 epochs into this bracket.
    #[test]
    fn lies_inside_an_independent_bracket_of_the_pair() {
        let epsilon = ShuffleBound::new(234, 100, 1.0, (2.0, 1.0)).unwrap().epsilon(1e-5).unwrap();
        assert!((21.010_078..21.020_079).contains(&epsilon), "{epsilon}");
    }
}
