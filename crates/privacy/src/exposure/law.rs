//! A law on the integers that keeps track of what it left out, and its powers under convolution.

use super::round::RoundLaw;
use crate::error::PrivacyError;

/// A distribution of c² on consecutive integers.
///
/// All operations have positive terms only, so that every probability keeps a small *relative*
/// error however far out in a tail it lies.
#[derive(Clone, Debug)]
pub struct Law {
    first: u64,
    mass: Vec<f64>,
    missing: f64,
    relative_error: f64,
}

/// Ends of a law below this share of the whole are dropped (and charged) while convolving: far
/// below any δ in use, so the charge never shows.
const DROPPED: f64 = 1e-140;

/// The multiplications that one convolution may cost; a few tenths of a second.
const MOST_OPERATIONS: f64 = 4e8;

impl Law {
    pub(super) fn new(first: u64, mut mass: Vec<f64>, missing: f64, relative_error: f64) -> Self {
        let end = mass.iter().rposition(|&q| q > 0.0).map_or(1, |last| last + 1);
        let start = mass.iter().position(|&q| q > 0.0).unwrap_or(0);
        mass.truncate(end);
        mass.drain(..start);
        Self { first: first + start as u64, mass, missing, relative_error }
    }

    pub(super) fn one_point(at: u64) -> Self {
        Self::new(at, vec![1.0], 0.0, 0.0)
    }

    /// The listed values of c² with their probabilities; zeros are skipped.
    pub fn iter(&self) -> impl Iterator<Item = (u64, f64)> + '_ {
        self.mass.iter().enumerate().filter(|&(_, &q)| q > 0.0).map(|(i, &q)| (self.first + i as u64, q))
    }

    /// Pr[c² = n], 0 where n is not listed.
    pub fn probability(&self, n: u64) -> f64 {
        n.checked_sub(self.first).and_then(|i| self.mass.get(i as usize)).copied().unwrap_or(0.0)
    }

    /// At most this much probability lies on values that are not listed.
    pub fn missing(&self) -> f64 {
        self.missing
    }

    /// The bound on the relative error of every listed probability.
    pub fn relative_error(&self) -> f64 {
        self.relative_error
    }

    /// The number of consecutive values spanned.
    pub fn span(&self) -> usize {
        self.mass.len()
    }

    /// The mean of c² over the listed values.
    pub fn mean(&self) -> f64 {
        self.iter().map(|(n, q)| n as f64 * q).sum()
    }

    /// The law of the sum of two independent values.
    pub fn convolve(&self, other: &Self) -> Result<Self, PrivacyError> {
        let (short, long) = if self.mass.len() <= other.mass.len() { (self, other) } else { (other, self) };
        let listed = short.mass.iter().filter(|&&a| a > 0.0).count();
        let operations = listed as f64 * long.mass.len() as f64;
        if operations > MOST_OPERATIONS {
            return Err(too_costly(operations));
        }
        let mut mass = vec![0.0; short.mass.len() + long.mass.len() - 1];
        for (i, &a) in short.mass.iter().enumerate() {
            if a > 0.0 {
                for (out, &b) in mass[i..].iter_mut().zip(&long.mass) {
                    *out += a * b;
                }
            }
        }
        let mut law = Self::new(
            self.first + other.first,
            mass,
            self.missing + other.missing,
            self.relative_error + other.relative_error + (short.mass.len() + 2) as f64 * f64::EPSILON,
        );
        law.drop_ends();
        Ok(law)
    }

    /// The law of the sum of `times` independent values, by binary powers.
    pub fn power(&self, mut times: u64) -> Result<Self, PrivacyError> {
        let mut result = Self::one_point(0);
        let mut square = self.clone();
        loop {
            if times & 1 == 1 {
                result = result.convolve(&square)?;
            }
            times >>= 1;
            if times == 0 {
                return Ok(result);
            }
            square = square.convolve(&square)?;
        }
    }

    fn drop_ends(&mut self) {
        let mut dropped = 0.0;
        while self.mass.len() > 1 && dropped + self.mass[self.mass.len() - 1] <= DROPPED {
            dropped += self.mass.pop().unwrap_or(0.0);
        }
        let mut start = 0;
        while start + 1 < self.mass.len() && dropped + self.mass[start] <= 2.0 * DROPPED {
            dropped += self.mass[start];
            start += 1;
        }
        self.mass.drain(..start);
        self.first += start as u64;
        self.missing += dropped * (1.0 + self.relative_error);
    }
}

fn too_costly(operations: f64) -> PrivacyError {
    PrivacyError::TooCostly {
        what: "the law of c²",
        operations,
        limit: MOST_OPERATIONS,
        remedy: "its moments are enough for ε and δ",
    }
}

/// P(y)^T for P(y) = Σ q_k y^{k²} by the recurrence of Euler and J. C. P. Miller,
/// n·q_0·a_n = Σ_k ((T+1)k² − n)·q_k·a_{n−k²}: one pass, cost (values of c²) × (values of k),
/// whatever T is. All terms are positive as long as n ≤ T + 1, which is required.
pub(super) struct Recurrence {
    /// (k², q_k/q_0) for k ≥ 1.
    steps: Vec<(usize, f64)>,
    rounds: f64,
    last: usize,
    missing: f64,
    relative_error: f64,
}

/// −ln of the probability allowed beyond the last value, and beyond the values that set the error.
const TAIL_NATS: f64 = 660.0;
const USUAL_NATS: f64 = 180.0;

impl Recurrence {
    /// `None` where the recurrence would subtract, divide by zero or take too long.
    pub(super) fn plan(round: &RoundLaw, rounds: u64) -> Option<Self> {
        let mass = round.mass();
        let t = rounds as f64;
        let most = mass.len() - 1;
        if most == 0 {
            return None;
        }
        // Chernoff: Pr[c² ≥ n] ≤ E[e^{θk²}]^T·e^{−θn} for every θ > 0; the best of a few.
        let mut last = t * (most * most) as f64;
        let mut usual = last;
        let mut missing = 0.0;
        for i in 0..40 {
            let theta = 4.0 * 0.7_f64.powi(i);
            let excess: f64 = mass
                .iter()
                .enumerate()
                .map(|(k, &q)| if q > 0.0 { q * (theta * (k * k) as f64).exp_m1() } else { 0.0 })
                .sum();
            let growth = t * excess.ln_1p();
            usual = usual.min(((growth + USUAL_NATS) / theta).ceil());
            let n = ((growth + TAIL_NATS) / theta).ceil();
            if n < last {
                last = n;
                missing = 1e-280;
            }
        }
        let cost = last * most as f64;
        // Conditions for positivity and for a leading coefficient that has not underflowed.
        if mass[0] < 1e-100 || last > t + 1.0 || cost > 4e8 {
            return None;
        }
        let steps =
            (1..=most).filter(|&k| mass[k] > 0.0).map(|k| (k * k, mass[k] / mass[0])).collect::<Vec<_>>();
        // A probability at n is built from at most n factors q_k/q_0 and n steps of the recurrence.
        // The values beyond `usual` have a total probability of 1e-78, where a larger error does not show.
        let relative_error =
            usual * ((steps.len() + 8) as f64 * 0.5 * f64::EPSILON + 2.0 * round.relative_error());
        Some(Self { steps, rounds: t, last: last as usize, missing, relative_error })
    }

    pub(super) fn run(&self) -> Result<Law, PrivacyError> {
        const LARGE: f64 = 1e100;
        let mut a = vec![0.0; self.last + 1];
        a[0] = 1.0;
        let mut live = 0;
        for n in 1..=self.last {
            let mut sum = 0.0;
            for &(square, ratio) in &self.steps {
                if square > n {
                    break;
                }
                sum += ((self.rounds + 1.0) * square as f64 - n as f64) * ratio * a[n - square];
            }
            a[n] = sum / n as f64;
            if a[n] > LARGE {
                // Scale down what the recurrence still reads; what underflows is 1e-300 of the
                // whole and lies in the left tail.
                for value in &mut a[live..=n] {
                    *value /= LARGE;
                }
                while a[live] == 0.0 && live < n {
                    live += 1;
                }
            }
        }
        let total: f64 = a.iter().sum();
        let (start, end) =
            (a.iter().position(|&v| v > 0.0).unwrap_or(0), a.iter().rposition(|&v| v > 0.0).unwrap_or(0));
        let mass = a[start..=end].iter().map(|v| v / total).collect::<Vec<_>>();
        // The whole is one: dividing by the sum removes the common factor q_0^T, whose relative
        // error would be T roundings.
        Ok(Law::new(
            start as u64,
            mass,
            self.missing + 1e-280 * self.last as f64 + 1e-78 * self.relative_error,
            2.0 * self.relative_error + (self.last + 4) as f64 * f64::EPSILON,
        ))
    }
}
