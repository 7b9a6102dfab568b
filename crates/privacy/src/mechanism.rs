//! One checked description of a run, read by the sampler, the noise, the ledger and every
//! accountant alike, so that they cannot disagree.
//!
//! [`RunConfig`] holds what a user wrote; [`RunConfig::check`] turns it into a [`Mechanism`] or
//! says what was given, what is allowed and why. Only a `Mechanism` can be accounted for.

use std::fmt;

/// Which data sets count as neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Neighbours {
    /// `max{|d∖d'|, |d'∖d|} ≤ g`: up to g samples are replaced by others. The paper's relation.
    Substitute,
    /// Up to g samples are added or removed; the size of the data set changes. Poisson only.
    AddRemove,
}

impl fmt::Display for Neighbours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Neighbours::Substitute => "substitute",
            Neighbours::AddRemove => "add-remove",
        })
    }
}

/// How the groups of a round are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampling {
    /// Every round draws an independent uniform subset of `groups · group_size` samples.
    Subsample {
        /// N, the size of the data set.
        samples: u64,
        /// m, groups a round.
        groups: u64,
        /// s, samples a group.
        group_size: u64,
    },
    /// Every epoch draws a permutation and cuts it into rounds; the N − B·ms left-over samples
    /// of an epoch are not used in it.
    Shuffle {
        /// N, the size of the data set.
        samples: u64,
        /// m, groups a round.
        groups: u64,
        /// s, samples a group.
        group_size: u64,
    },
    /// Every round keeps each sample independently with probability `rate`; s = 1.
    Poisson {
        /// p, a public constant, never computed from the private N.
        rate: f64,
    },
}

impl Sampling {
    /// The name used on the command line and in configuration files.
    pub fn name(&self) -> &'static str {
        match self {
            Sampling::Subsample { .. } => "subsample",
            Sampling::Shuffle { .. } => "shuffle",
            Sampling::Poisson { .. } => "poisson",
        }
    }

    /// B = ⌊N/(ms)⌋, or ⌊1/p⌋ for Poisson sampling.
    pub fn rounds_per_epoch(&self) -> u64 {
        match *self {
            Sampling::Subsample { samples, groups, group_size }
            | Sampling::Shuffle { samples, groups, group_size } => {
                samples.checked_div(groups.saturating_mul(group_size)).unwrap_or(0)
            }
            // A rate that was written as m/N may be a rounding above it.
            Sampling::Poisson { rate } => ((1.0 / rate) * (1.0 + 1e-12)).floor() as u64,
        }
    }
}

/// The length of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// E epochs of [`Sampling::rounds_per_epoch`] rounds.
    Epochs(u64),
    /// T rounds.
    Rounds(u64),
}

/// The scale of the noise, in either convention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Noise {
    /// σ of the paper: the noise on every coordinate is N(0, (2Cσ)²).
    Sigma(f64),
    /// z of the usual DP-SGD: the noise on every coordinate is N(0, (Cz)²); z = 2σ.
    Multiplier(f64),
}

impl Noise {
    /// σ, relative to 2C.
    pub fn sigma(self) -> f64 {
        match self {
            Noise::Sigma(sigma) => sigma,
            Noise::Multiplier(z) => 0.5 * z,
        }
    }

    /// z = 2σ, relative to C.
    pub fn multiplier(self) -> f64 {
        2.0 * self.sigma()
    }
}

/// A stretch of rounds with constant settings, as written by a user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseConfig {
    /// The sampler with its sizes.
    pub sampling: Sampling,
    /// How long it runs.
    pub length: Length,
    /// The noise.
    pub noise: Noise,
    /// Appendix "factor 2": every group is kept with probability ½.
    pub filtered: bool,
}

/// A run as written by a user: phases one after the other, and what else is released.
#[derive(Clone, Debug, PartialEq)]
pub struct RunConfig {
    /// The phases in order.
    pub phases: Vec<PhaseConfig>,
    /// The neighbour relation.
    pub neighbours: Neighbours,
    /// g, the number of differing samples.
    pub differing: u64,
    /// µ of every further Gaussian release composed in (the private normalisation of the data),
    /// for this neighbour relation and this g.
    pub releases: Vec<f64>,
}

/// Why a description of a run was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[error("{name} = {given}: {allowed} ({why})")]
pub struct MechanismError {
    /// The setting, named as on the command line.
    pub name: &'static str,
    /// What was given.
    pub given: String,
    /// What is allowed.
    pub allowed: String,
    /// The reason.
    pub why: String,
}

/// The largest number of differing samples; the cost of the law of c grows with it.
pub const MOST_DIFFERING: u64 = 512;
/// The largest N: every integer up to it is an exact `f64`.
pub const MOST_SAMPLES: u64 = 1 << 53;
/// The largest T: beyond it the rounding of one round's moment, times T, would drown the result.
pub const MOST_ROUNDS: u64 = 1_000_000_000_000;
/// The smallest and largest σ.
pub const SIGMA_RANGE: (f64, f64) = (0.05, 1e5);

fn refuse<T>(
    name: &'static str,
    given: impl fmt::Display,
    allowed: impl Into<String>,
    why: impl Into<String>,
) -> Result<T, MechanismError> {
    Err(MechanismError { name, given: given.to_string(), allowed: allowed.into(), why: why.into() })
}

impl RunConfig {
    /// A run of one phase with substituted neighbours, g = 1 and no further release.
    pub fn single(phase: PhaseConfig) -> Self {
        Self {
            phases: vec![phase],
            neighbours: match phase.sampling {
                Sampling::Poisson { .. } => Neighbours::AddRemove,
                _ => Neighbours::Substitute,
            },
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
    ///     noise: Noise::Sigma(2.0),
    ///     filtered: false,
    /// });
    /// assert_eq!(run.check()?.phases()[0].rounds(), 93_700);
    ///
    /// let mut wrong = run;
    /// wrong.differing = 70_000;
    /// assert_eq!(
    ///     wrong.check().unwrap_err().to_string(),
    ///     "differing = 70000: at least 1 and at most 512 (the exact law of c is computed, never bounded, and its cost grows with g)",
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
            if !(mu > 0.0 && mu <= 1e3) {
                return refuse(
                    "release-mu",
                    mu,
                    "above 0 and at most 1000",
                    "a further Gaussian release is G_µ-DP with a positive, finite µ",
                );
            }
        }
        if self.phases.is_empty() {
            return refuse("phase", "none", "at least one phase", "a run has rounds");
        }
        let phases =
            self.phases.iter().map(|phase| self.check_phase(phase)).collect::<Result<Vec<_>, _>>()?;
        Ok(Mechanism {
            phases,
            neighbours: self.neighbours,
            differing: self.differing,
            releases: self.releases.clone(),
        })
    }

    fn check_phase(&self, phase: &PhaseConfig) -> Result<Phase, MechanismError> {
        match phase.sampling {
            Sampling::Subsample { samples, groups, group_size }
            | Sampling::Shuffle { samples, groups, group_size } => {
                self.check_sizes(samples, groups, group_size, phase.sampling.name())?;
            }
            Sampling::Poisson { rate } => {
                if !(1e-10..=1.0).contains(&rate) {
                    return refuse(
                        "rate",
                        rate,
                        "at least 1e-10 and at most 1",
                        "it is the probability with which a round keeps a sample",
                    );
                }
                if phase.filtered {
                    return refuse(
                        "filter",
                        true,
                        "off with poisson sampling",
                        "Poisson sampling is itself a filter: halve the rate instead",
                    );
                }
            }
        }
        let sigma = phase.noise.sigma();
        let (smallest, largest) = SIGMA_RANGE;
        if !(sigma >= smallest && sigma <= largest) {
            let (name, given, scale) = match phase.noise {
                Noise::Sigma(sigma) => ("sigma", sigma, 1.0),
                Noise::Multiplier(z) => ("noise-multiplier", z, 2.0),
            };
            return refuse(
                name,
                given,
                format!("between {} and {}", scale * smallest, scale * largest),
                "below, nothing is hidden; above, nothing is learned; the noise is N(0, (2Cσ)²)",
            );
        }
        let rounds = match phase.length {
            Length::Rounds(rounds) => rounds,
            Length::Epochs(epochs) => epochs.saturating_mul(phase.sampling.rounds_per_epoch()),
        };
        if rounds == 0 || rounds > MOST_ROUNDS {
            let (name, given) = match phase.length {
                Length::Rounds(rounds) => ("rounds", rounds),
                Length::Epochs(epochs) => ("epochs", epochs),
            };
            return refuse(
                name,
                given,
                format!("at least 1, and at most {MOST_ROUNDS} rounds in all"),
                "a run has rounds, and beyond that the rounding of one round's moment would drown the result",
            );
        }
        Ok(Phase { sampling: phase.sampling, rounds, sigma, filtered: phase.filtered })
    }

    fn check_sizes(
        &self,
        samples: u64,
        groups: u64,
        group_size: u64,
        sampling: &str,
    ) -> Result<(), MechanismError> {
        if self.neighbours == Neighbours::AddRemove {
            return refuse(
                "neighbours",
                self.neighbours,
                format!("substitute with {sampling} sampling"),
                "batches have a fixed size, so a removed sample is replaced by another; add-remove needs poisson sampling",
            );
        }
        if samples == 0 || samples > MOST_SAMPLES {
            return refuse(
                "samples",
                samples,
                format!("at least 1 and at most {MOST_SAMPLES}"),
                "it is the size of the data set",
            );
        }
        for (name, value) in [("groups", groups), ("group-size", group_size)] {
            if value == 0 {
                return refuse(name, value, "at least 1", "a round has m ≥ 1 groups of s ≥ 1 samples");
            }
        }
        match groups.checked_mul(group_size) {
            Some(batch) if batch <= samples => {}
            _ => {
                return refuse(
                    "groups × group-size",
                    format!("{groups} × {group_size}"),
                    format!("at most samples = {samples}"),
                    "a round draws that many different samples",
                );
            }
        }
        if self.differing > samples {
            return refuse(
                "differing",
                self.differing,
                format!("at most samples = {samples}"),
                "more samples than there are cannot differ",
            );
        }
        Ok(())
    }
}

/// A checked phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    sampling: Sampling,
    rounds: u64,
    sigma: f64,
    filtered: bool,
}

impl Phase {
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

    /// Whether every group is kept with probability ½ only.
    pub fn filtered(&self) -> bool {
        self.filtered
    }

    /// E = T·(share of the data a round touches), the epochs' worth of gradients.
    pub fn epochs(&self) -> f64 {
        match self.sampling {
            Sampling::Poisson { rate } => self.rounds as f64 * rate,
            sampling => self.rounds as f64 / sampling.rounds_per_epoch() as f64,
        }
    }
}

/// A checked run. See the module documentation.
#[derive(Clone, Debug, PartialEq)]
pub struct Mechanism {
    phases: Vec<Phase>,
    neighbours: Neighbours,
    differing: u64,
    releases: Vec<f64>,
}

impl Mechanism {
    /// The phases in order.
    pub fn phases(&self) -> &[Phase] {
        &self.phases
    }

    /// The neighbour relation.
    pub fn neighbours(&self) -> Neighbours {
        self.neighbours
    }

    /// g, the number of differing samples.
    pub fn differing(&self) -> u64 {
        self.differing
    }

    /// µ of every further Gaussian release.
    pub fn releases(&self) -> &[f64] {
        &self.releases
    }

    /// The same run as a configuration, for changing one value and checking again.
    pub fn config(&self) -> RunConfig {
        RunConfig {
            phases: self
                .phases
                .iter()
                .map(|phase| PhaseConfig {
                    sampling: phase.sampling,
                    length: Length::Rounds(phase.rounds),
                    noise: Noise::Sigma(phase.sigma),
                    filtered: phase.filtered,
                })
                .collect(),
            neighbours: self.neighbours,
            differing: self.differing,
            releases: self.releases.clone(),
        }
    }

    /// The noise of a phase in units of what one hit group can move the sum by: 2C when a sample
    /// is substituted (so σ), C when it is added or removed (so z).
    pub fn noise_per_hit(&self, phase: &Phase) -> f64 {
        match self.neighbours {
            Neighbours::Substitute => phase.sigma(),
            Neighbours::AddRemove => phase.noise_multiplier(),
        }
    }
}
