//! What an honest noised update looks like, so that others can be turned away.
//!
//! An honest client sends u = (U + noise)/m with ‖U/m‖ ≤ L and independent noise of deviation s on each of d
//! coordinates. So ‖u‖²/s² has a noncentral χ² law with d degrees of freedom and λ ≤ (L/s)². Its tails (Birgé
//! 2001, Lemma 8.1; Laurent and Massart 2000 for λ = 0) give, each with probability at most e^{−t}:
//!
//! * ‖u‖² < s²·(d − 2√(dt)), because λ > 0 only makes the norm larger;
//! * ‖u‖² > s²·(d + λ + 2√((d + 2λ)t) + 2t), which grows with s and with L;
//! * some |u_j| > L + s√(2(ln d + t)), by the union bound.
//!
//! # Guarantee
//!
//! An honest update within the ranges of the terms is rejected with probability at most 3·e^{−t}; t = 30 makes
//! it 3·10⁻¹³. That is a promise to clients. To the server the check promises less: an update that passes has
//! a bounded length, and where d is large against (L/s)², a client that leaves out its noise is noticed.

use crate::reject::Reject;
use crate::terms::Bounds;

/// Exact noise is a little wider than 2Cσ/m (its grid takes a share of the sensitivity), and single precision
/// rounds: both far below this.
const SLACK: f64 = 2e-3;

/// The bounds of an honest noised update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Honest {
    /// The smallest ‖u‖.
    pub shortest: f64,
    /// The largest ‖u‖.
    pub longest: f64,
    /// The largest |u_j|.
    pub coordinate: f64,
}

impl Honest {
    /// Of the ranges that the terms allow.
    pub fn new(bounds: &Bounds, dimension: u64) -> Self {
        let (d, t) = (dimension as f64, bounds.tail);
        let (low, high) = (bounds.smallest_deviation, bounds.largest_deviation);
        let lambda = (bounds.signal / high).powi(2);
        let least = (d - 2.0 * (d * t).sqrt()).max(0.0);
        let most = d + lambda + 2.0 * ((d + 2.0 * lambda) * t).sqrt() + 2.0 * t;
        Self {
            shortest: low * least.sqrt() * (1.0 - SLACK),
            longest: high * most.sqrt() * (1.0 + SLACK),
            coordinate: (bounds.signal + high * (2.0 * (d.ln() + t)).sqrt()) * (1.0 + SLACK),
        }
    }

    /// Looks at the coordinates of an update.
    pub fn check(&self, values: &[f32]) -> Result<(), Reject> {
        let (mut squares, mut largest) = (0.0f64, 0.0f32);
        let mut finite = true;
        // Eight sums, so that the additions do not wait for each other.
        let mut sums = [0.0f64; 8];
        for chunk in values.chunks(8) {
            for (sum, &value) in sums.iter_mut().zip(chunk) {
                *sum += f64::from(value) * f64::from(value);
                largest = largest.max(value.abs());
                finite &= value.is_finite();
            }
        }
        squares += sums.iter().sum::<f64>();
        if !finite {
            return Err(Reject::NotFinite);
        }
        if f64::from(largest) > self.coordinate {
            return Err(Reject::Coordinate);
        }
        let norm = squares.sqrt();
        if norm < self.shortest || norm > self.longest {
            return Err(Reject::Norm);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use dpsgd::train::noise::standard_normals;
    use dpsgd::train::{Purpose, Randomness};

    use super::*;

    /// The figures of the paper's LeNet: d = 61,706, σ = 1, m = 64.
    #[test]
    fn the_range_of_an_honest_norm() {
        let honest = Honest::new(&Bounds::of(1.0, 2.0 / 64.0), 61_706);
        assert!((honest.shortest - 7.59).abs() < 0.03, "{honest:?}");
        assert!((honest.longest - 8.00).abs() < 0.03, "{honest:?}");
    }

    fn noised(d: usize, deviation: f64, signal: f64, seed: u64) -> Vec<f32> {
        let mut values = vec![0.0; d];
        let randomness = Randomness::from_seed(seed, 0);
        standard_normals(&mut randomness.stream(Purpose::Noise, 0), &mut values);
        for value in &mut values {
            *value = (f64::from(*value) * deviation) as f32;
        }
        values[0] += signal as f32;
        values
    }

    /// False alarms: each of the 400 honest updates is rejected with probability below 3e-13.
    #[test]
    fn honest_updates_pass_and_others_do_not() {
        let (d, deviation) = (20_000, 2.0 / 64.0);
        let honest = Honest::new(&Bounds::of(1.0, deviation), d as u64);
        for seed in 0..200 {
            assert_eq!(honest.check(&noised(d, deviation, 1.0, seed)), Ok(()));
            assert_eq!(honest.check(&noised(d, deviation, 0.0, seed)), Ok(()));
            assert_eq!(honest.check(&noised(d, 0.5 * deviation, 1.0, seed)), Err(Reject::Norm));
            assert_eq!(honest.check(&noised(d, deviation, 3.0, seed)), Err(Reject::Coordinate));
        }
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut update = noised(d, deviation, 0.0, 0);
            update[d - 1] = bad;
            assert_eq!(honest.check(&update), Err(Reject::NotFinite));
        }
        assert_eq!(honest.check(&vec![1e30; d]), Err(Reject::Coordinate));
    }
}
