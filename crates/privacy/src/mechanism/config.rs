//! A run as a user writes it, and the one place where it is checked.

use serde::{Deserialize, Serialize};

use super::{
    MOST_DIFFERING, MOST_ROUNDS, Mechanism, MechanismError, Neighbours, Phase, SIGMA_RANGE, Sampling, refuse,
};

/// The length of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Length {
    /// E epochs of [`Sampling::rounds_per_epoch`] rounds.
    Epochs(u64),
    /// T rounds.
    Rounds(u64),
}

/// The scale of the noise, in either convention.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum NoiseScale {
    /// σ of the paper: the noise on every coordinate is N(0, (2Cσ)²).
    #[serde(rename = "sigma")]
    Sigma(f64),
    /// z of the usual DP-SGD: the noise on every coordinate is N(0, (Cz)²); z = 2σ.
    #[serde(rename = "noise-multiplier")]
    Multiplier(f64),
}

impl NoiseScale {
    /// σ, relative to 2C.
    pub fn sigma(self) -> f64 {
        match self {
            NoiseScale::Sigma(sigma) => sigma,
            NoiseScale::Multiplier(z) => 0.5 * z,
        }
    }

    /// z = 2σ, relative to C.
    pub fn multiplier(self) -> f64 {
        2.0 * self.sigma()
    }
}

/// A stretch of rounds with constant settings, as written by a user.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseConfig {
    /// The sampler with its sizes.
    pub sampling: Sampling,
    /// How long it runs.
    pub length: Length,
    /// The noise.
    pub noise: NoiseScale,
    /// Appendix "factor 2": every group is kept with probability ½.
    #[serde(default)]
    pub filtered: bool,
}

/// A run as written by a user: phases one after the other, and what else is released.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// The neighbour relation.
    pub neighbours: Neighbours,
    /// g, the number of differing samples.
    pub differing: u64,
    /// µ of every further Gaussian release composed in (the private normalisation of the data), for this
    /// neighbour relation and **one** differing sample; g of them make it G_{gµ}.
    #[serde(default)]
    pub releases: Vec<f64>,
    /// The phases in order.
    pub phases: Vec<PhaseConfig>,
}

impl RunConfig {
    /// A run of one phase with the usual neighbours of its sampler, g = 1 and no further release.
    pub fn single(phase: PhaseConfig) -> Self {
        Self {
            phases: vec![phase],
            neighbours: phase.sampling.usual_neighbours(),
            differing: 1,
            releases: Vec::new(),
        }
    }

    /// Checks every value once; the result can be accounted for and trained with.
    ///
    /// ```
    /// use dpsgd_privacy::mechanism::*;
    /// let run = RunConfig::single(PhaseConfig {
    ///     sampling: Sampling::Subsample { samples: 60_000, groups: 64, group_size: 1 },
    ///     length: Length::Epochs(100),
    ///     noise: NoiseScale::Sigma(2.0),
    ///     filtered: false,
    /// });
    /// assert_eq!(run.check()?.phases()[0].rounds(), 93_700);
    ///
    /// let mut wrong = run;
    /// wrong.differing = 70_000;
    /// assert_eq!(
    ///     wrong.check().unwrap_err().to_string(),
    ///     "differing = 70000: at least 1 and at most 512 \
    ///      (the exact law of c is computed, never bounded, and its cost grows with g)",
    /// );
    /// # Ok::<(), MechanismError>(())
    /// ```
    pub fn check(&self) -> Result<Mechanism, MechanismError> {
        if self.differing == 0 || self.differing > MOST_DIFFERING {
            return refuse(
                "differing",
                self.differing,
                format!("at least 1 and at most {MOST_DIFFERING}"),
                "the exact law of c is computed, never bounded, and its cost grows with g",
            );
        }
        for &mu in &self.releases {
            if !(mu > 0.0 && mu * self.differing as f64 <= 1e3) {
                return refuse(
                    "release-mu",
                    mu,
                    format!("above 0 and at most 1000/g = {}", 1e3 / self.differing as f64),
                    "a further Gaussian release is G_µ-DP for one sample and G_{gµ}-DP for g, \
                     with a positive, finite µ",
                );
            }
        }
        if self.phases.is_empty() {
            return refuse("phase", "none", "at least one phase", "a run needs rounds");
        }
        let phases =
            self.phases.iter().map(|phase| self.check_phase(phase)).collect::<Result<Vec<_>, _>>()?;
        if phases.iter().try_fold(0u64, |sum, phase| sum.checked_add(phase.rounds())).is_none() {
            return refuse(
                "rounds",
                "the sum over all phases",
                "at most 2^64",
                "rounds are counted in 64 bits",
            );
        }
        Ok(Mechanism {
            phases,
            neighbours: self.neighbours,
            differing: self.differing,
            releases: self.releases.clone(),
        })
    }

    fn check_phase(&self, phase: &PhaseConfig) -> Result<Phase, MechanismError> {
        let sampling = phase.sampling;
        sampling.allows(self.neighbours)?;
        sampling.check(self.differing)?;
        if phase.filtered {
            sampling.allows_filter()?;
        }
        check_noise(phase.noise)?;
        let rounds = checked_rounds(sampling, phase.length)?;
        Ok(Phase { sampling, rounds, sigma: phase.noise.sigma(), filtered: phase.filtered })
    }
}

fn check_noise(noise: NoiseScale) -> Result<(), MechanismError> {
    let (smallest, largest) = SIGMA_RANGE;
    if (smallest..=largest).contains(&noise.sigma()) {
        return Ok(());
    }
    let (name, given, scale) = match noise {
        NoiseScale::Sigma(sigma) => ("sigma", sigma, 1.0),
        NoiseScale::Multiplier(z) => ("noise-multiplier", z, 2.0),
    };
    refuse(
        name,
        given,
        format!("between {} and {}", scale * smallest, scale * largest),
        "less noise hides nothing, more leaves nothing to learn; the noise is N(0, (2Cσ)²)",
    )
}

fn checked_rounds(sampling: Sampling, length: Length) -> Result<u64, MechanismError> {
    let (name, given, rounds) = match length {
        Length::Rounds(rounds) => ("rounds", rounds, rounds),
        Length::Epochs(epochs) => ("epochs", epochs, epochs.saturating_mul(sampling.rounds_per_epoch())),
    };
    if (1..=MOST_ROUNDS).contains(&rounds) {
        return Ok(rounds);
    }
    refuse(
        name,
        given,
        format!("at least 1, and at most {MOST_ROUNDS} rounds in all"),
        "a run needs rounds, and with more of them the rounding of one round's moment would drown the result",
    )
}
