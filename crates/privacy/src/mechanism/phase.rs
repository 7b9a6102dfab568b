//! A stretch of rounds with constant settings, checked.

use super::Sampling;

/// A checked phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    pub(super) sampling: Sampling,
    pub(super) rounds: u64,
    pub(super) sigma: f64,
    pub(super) filtered: bool,
}

impl Phase {
    /// Equal for phases that differ in their length at most. (A number is written with all its digits.)
    pub(super) fn key(&self) -> String {
        format!("{:?} {:?} {}", self.sampling, self.sigma, self.filtered)
    }

    /// The sampler with its sizes.
    pub fn sampling(&self) -> Sampling {
        self.sampling
    }

    /// T, the rounds of this phase.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// σ: the noise is N(0, (2Cσ)²).
    pub fn sigma(&self) -> f64 {
        self.sigma
    }

    /// z = 2σ: the noise is N(0, (Cz)²).
    pub fn noise_multiplier(&self) -> f64 {
        2.0 * self.sigma
    }

    /// The noise in units of the most that one sample, added or removed, can move the sum of its round: C
    /// where it is a group of its own (so z), 2C where it shares one (so σ).
    ///
    /// # Guarantee
    /// A group's result has norm at most C with the sample and without it, whatever the inner algorithm makes
    /// of it; the two differ by at most 2C. Where the sample is the whole group, one of them is 0.
    pub fn noise_per_sample(&self) -> f64 {
        if self.sampling.shares_groups() { self.sigma } else { self.noise_multiplier() }
    }

    /// Whether each group is kept only with probability ½.
    pub fn filtered(&self) -> bool {
        self.filtered
    }

    /// E = T·(share of the data a round touches), the epochs' worth of gradients.
    pub fn epochs(&self) -> f64 {
        self.sampling.epochs(self.rounds)
    }

    /// Whether each group of a round is present or absent independently of the others: by the sampler,
    /// or by the filter (a filtered cell is an empty one, which stays where it is).
    ///
    /// # Guarantee
    /// Where this is `true`, neighbouring data sets may differ by one group more or less; where it is
    /// `false`, only the content of a group differs. The rounding share of the sensitivity depends on it.
    pub fn independent_groups(&self) -> bool {
        self.filtered && self.sampling.sizes().is_some() || self.sampling.independent_groups()
    }

    /// Whether the number of samples in a round is private: it is random, or N itself is private. How long such
    /// a round takes must not be seen.
    ///
    /// # Guarantee
    /// Where this is `false`, every round has a number of samples that everybody knows. Cells of a random
    /// allocation are as many in every round, and yet what they hold is not.
    pub fn has_private_size(&self) -> bool {
        self.filtered || self.sampling.population().is_none()
    }
}
