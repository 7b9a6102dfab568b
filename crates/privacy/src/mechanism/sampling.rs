//! How the groups of a round are drawn, and everything the rest of the workspace asks about it.
//!
//! Each question is one method with an exhaustive match. A new sampler does not compile until it has
//! answered all of them; no other module decides anything by looking at the variants.

use serde::{Deserialize, Serialize};

use super::{MOST_SAMPLES, MechanismError, Neighbours, SamplingKind, refuse};

/// The most rounds an epoch of random allocation may have; up to there the engine is tested.
const MOST_ROUNDS_PER_EPOCH: u64 = 100_000_000;

/// How the groups of a round are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "kebab-case", deny_unknown_fields)]
pub enum Sampling {
    /// Every round draws an independent uniform subset of `groups · group_size` samples.
    Subsample {
        /// N, the size of the data set.
        samples: u64,
        /// m, groups per round.
        groups: u64,
        /// s, samples per group.
        group_size: u64,
    },
    /// Every epoch draws a permutation and cuts it into rounds; the N − B·ms leftover samples of an
    /// epoch are not used in it.
    Shuffle {
        /// N, the size of the data set.
        samples: u64,
        /// m, groups per round.
        groups: u64,
        /// s, samples per group.
        group_size: u64,
    },
    /// Every round keeps each sample independently with probability `rate`; s = 1.
    Poisson {
        /// p, a public constant, never computed from the private N.
        rate: f64,
    },
    /// In every epoch each sample draws one of `rounds` rounds, uniformly and independently; s = 1.
    Allocate {
        /// B, the rounds of an epoch: a public constant, never computed from the private N.
        rounds: u64,
    },
    /// In every epoch each sample draws one of the `rounds`·`groups` cells, uniformly and independently. A
    /// cell is a group: what the inner algorithm makes of it is clipped as a whole. An empty cell adds
    /// nothing.
    AllocateCells {
        /// B, the rounds of an epoch: a public constant, never computed from the private N.
        rounds: u64,
        /// m, the cells of a round.
        groups: u64,
        /// s, about how many samples a cell holds, at least 2. A public guess: it steers memory and what is
        /// told to people, and the guarantee does not depend on it.
        group_size: u64,
    },
}

/// N, m and s of a sampler whose rounds all use the same number of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedSizes {
    /// N, the size of the data set.
    pub samples: u64,
    /// m, groups per round.
    pub groups: u64,
    /// s, samples per group.
    pub group_size: u64,
}

impl FixedSizes {
    /// ms, samples per round.
    pub fn batch(self) -> u64 {
        self.groups.saturating_mul(self.group_size)
    }
}

/// How many groups a round has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BatchSize {
    /// Every round has m groups of s samples (fewer groups only if the phase is filtered).
    Fixed {
        /// m.
        groups: u64,
        /// s.
        group_size: u64,
    },
    /// Each sample is in the batch with probability `rate`, as its own group. The number is
    /// private: it depends on N.
    Random {
        /// p.
        rate: f64,
    },
    /// Every round has m groups, each with a random number of samples, often none.
    Cells {
        /// m.
        groups: u64,
        /// The probability that a round draws a given sample.
        rate: f64,
    },
}

/// When a sampler draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// Afresh every round.
    EveryRound,
    /// Once per epoch: the rounds of an epoch share one draw.
    EveryEpoch,
}

/// What the noised sum of a round is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Divisor {
    /// m, which is public.
    Groups(u64),
    /// A public constant that the configuration must give, because the size of the batch is private.
    PublicConstant,
}

/// One round by itself, regardless of the other rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RoundDraw {
    /// A uniform subset of m·s of N samples, split uniformly into m groups.
    Subset(FixedSizes),
    /// Each sample independently with probability `rate`, as its own group.
    EachSample {
        /// p.
        rate: f64,
    },
    /// Each sample independently with probability `rate`, in one of `groups` cells, drawn uniformly.
    Cells {
        /// 1/B.
        rate: f64,
        /// m.
        groups: u64,
    },
}

/// Which parts of a phase are drawn independently; the law of c² is a convolution over them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Independent {
    /// The rounds, each drawn as [`Sampling::round`] says.
    Rounds,
    /// The epochs; the rounds within one are dependent.
    Epochs(EpochDraw),
}

/// The joint draw of all rounds of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochDraw {
    /// A uniform permutation, cut into consecutive rounds.
    Permutation(FixedSizes),
    /// Each sample is in one round, drawn uniformly and independently of the other samples.
    Allocation {
        /// B.
        rounds: u64,
        /// m, where it is in one of the m cells of its round; `None` where it is a group of its own.
        cells: Option<u64>,
    },
}

/// The pair of distributions that dominates one round, or one epoch, against A₀, which does not see the
/// draws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Blind {
    /// Advanced joint convexity over the number of groups hit.
    Halves,
    /// Mixtures of Gaussians on a line, one component for each number of samples kept.
    Line {
        /// p; at 1 nothing is sampled and the pair is a plain Gaussian.
        rate: f64,
    },
    /// One epoch as a whole: (1/B)·Σ_b N(e_b, z²I) against N(0, z²I), see [`crate::allocation`].
    Allocation {
        /// B; at 1 nothing is sampled and the pair is a plain Gaussian.
        rounds: u64,
    },
    /// No theorem; nothing is claimed beyond A₁.
    Unsupported {
        /// The combination.
        what: &'static str,
        /// Why nothing is claimed about it.
        why: &'static str,
    },
}

/// Which of the paper's closed forms apply to a sampler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaperForms {
    /// Those for subsampling.
    Subsampled(FixedSizes),
    /// Those for shuffling.
    Shuffled(FixedSizes),
    /// None.
    Absent,
}

impl Sampling {
    /// Which sampler it is, without its sizes.
    pub const fn kind(&self) -> SamplingKind {
        match self {
            Sampling::Subsample { .. } => SamplingKind::Subsample,
            Sampling::Shuffle { .. } => SamplingKind::Shuffle,
            Sampling::Poisson { .. } => SamplingKind::Poisson,
            Sampling::Allocate { .. } | Sampling::AllocateCells { .. } => SamplingKind::Allocate,
        }
    }

    /// The name used on the command line and in configuration files.
    pub const fn name(&self) -> &'static str {
        self.kind().name()
    }

    /// N, m and s where every round has the same size; `None` where the size of a round is random.
    pub const fn sizes(&self) -> Option<FixedSizes> {
        match *self {
            Sampling::Subsample { samples, groups, group_size }
            | Sampling::Shuffle { samples, groups, group_size } => {
                Some(FixedSizes { samples, groups, group_size })
            }
            Sampling::Poisson { .. } | Sampling::Allocate { .. } | Sampling::AllocateCells { .. } => None,
        }
    }

    /// Whether a sample may change everything its group hands over, however much of the group that is: then
    /// adding or removing one moves the sum by up to 2C, and not by C.
    ///
    /// # Guarantee
    /// `false` only where every sample is a group of its own, clipped by itself.
    pub const fn shares_groups(&self) -> bool {
        match self {
            Sampling::Poisson { .. } | Sampling::Allocate { .. } => false,
            Sampling::Subsample { .. } | Sampling::Shuffle { .. } | Sampling::AllocateCells { .. } => true,
        }
    }

    /// B = ⌊N/(ms)⌋; ⌊1/p⌋ for Poisson sampling; given for random allocation.
    pub fn rounds_per_epoch(&self) -> u64 {
        match *self {
            Sampling::Subsample { samples, groups, group_size }
            | Sampling::Shuffle { samples, groups, group_size } => {
                samples.checked_div(groups.saturating_mul(group_size)).unwrap_or(0)
            }
            // A rate written as m/N may be one rounding above it.
            Sampling::Poisson { rate } => ((1.0 / rate) * (1.0 + 1e-12)).floor() as u64,
            Sampling::Allocate { rounds } | Sampling::AllocateCells { rounds, .. } => rounds,
        }
    }

    /// E, the epochs' worth of gradients in `rounds` rounds.
    pub fn epochs(&self, rounds: u64) -> f64 {
        match *self {
            Sampling::Subsample { .. }
            | Sampling::Shuffle { .. }
            | Sampling::Allocate { .. }
            | Sampling::AllocateCells { .. } => rounds as f64 / self.rounds_per_epoch() as f64,
            Sampling::Poisson { rate } => rounds as f64 * rate,
        }
    }

    /// The probability that a round draws a given sample: ms/N, p or 1/B. (A filter halves it.)
    pub fn share_of_data(&self) -> f64 {
        match *self {
            Sampling::Subsample { samples, groups, group_size }
            | Sampling::Shuffle { samples, groups, group_size } => {
                groups.saturating_mul(group_size) as f64 / samples as f64
            }
            Sampling::Poisson { rate } => rate,
            Sampling::Allocate { rounds } | Sampling::AllocateCells { rounds, .. } => 1.0 / rounds as f64,
        }
    }

    /// N where it is part of the public mechanism.
    ///
    /// # Guarantee
    /// `None` where the data sets of a neighbouring pair may differ in size: then N is private and
    /// nothing that is released may depend on it.
    pub const fn population(&self) -> Option<u64> {
        match *self {
            Sampling::Subsample { samples, .. } | Sampling::Shuffle { samples, .. } => Some(samples),
            Sampling::Poisson { .. } | Sampling::Allocate { .. } | Sampling::AllocateCells { .. } => None,
        }
    }

    /// How many groups a round has.
    pub const fn batch(&self) -> BatchSize {
        match *self {
            Sampling::Subsample { groups, group_size, .. } | Sampling::Shuffle { groups, group_size, .. } => {
                BatchSize::Fixed { groups, group_size }
            }
            Sampling::Poisson { rate } => BatchSize::Random { rate },
            Sampling::Allocate { rounds } => BatchSize::Random { rate: 1.0 / rounds as f64 },
            Sampling::AllocateCells { rounds, groups, .. } => {
                BatchSize::Cells { groups, rate: 1.0 / rounds as f64 }
            }
        }
    }

    /// s, samples per group; in cells, on average.
    pub const fn group_size(&self) -> u64 {
        match *self {
            Sampling::Subsample { group_size, .. }
            | Sampling::Shuffle { group_size, .. }
            | Sampling::AllocateCells { group_size, .. } => group_size,
            Sampling::Poisson { .. } | Sampling::Allocate { .. } => 1,
        }
    }

    /// m, groups per round, where it is fixed.
    pub const fn groups(&self) -> Option<u64> {
        match *self {
            Sampling::Subsample { groups, .. }
            | Sampling::Shuffle { groups, .. }
            | Sampling::AllocateCells { groups, .. } => Some(groups),
            Sampling::Poisson { .. } | Sampling::Allocate { .. } => None,
        }
    }

    /// Whether a batch is drawn for its round or for its whole epoch.
    ///
    /// # Guarantee
    /// [`Draw::EveryEpoch`] means that the rounds of an epoch are dependent. A run may then resume only
    /// where an epoch begins (the rest of a draw is lost with the process, and a new draw within the epoch
    /// could use a sample twice), and a charge covers whole epochs.
    pub const fn draw(&self) -> Draw {
        match self {
            Sampling::Subsample { .. } | Sampling::Poisson { .. } => Draw::EveryRound,
            Sampling::Shuffle { .. } | Sampling::Allocate { .. } | Sampling::AllocateCells { .. } => {
                Draw::EveryEpoch
            }
        }
    }

    /// Whether each group of a round is present or absent independently of the others.
    ///
    /// # Guarantee
    /// Where it is, neighbouring data sets differ by the presence of a group; elsewhere by its content (in
    /// cells too: there are always m of them, and adding a sample changes what one of them holds). The share
    /// of the sensitivity that rounding adds depends on it. A filter makes groups of a fixed size independent:
    /// ask [`Phase::independent_groups`](super::Phase::independent_groups).
    pub const fn independent_groups(&self) -> bool {
        match self {
            Sampling::Subsample { .. } | Sampling::Shuffle { .. } | Sampling::AllocateCells { .. } => false,
            Sampling::Poisson { .. } | Sampling::Allocate { .. } => true,
        }
    }

    /// What the noised sum is divided by.
    ///
    /// # Guarantee
    /// Never a number that depends on the data: a private batch size must not be the divisor.
    pub const fn divisor(&self) -> Divisor {
        match *self {
            Sampling::Subsample { groups, .. }
            | Sampling::Shuffle { groups, .. }
            | Sampling::AllocateCells { groups, .. } => Divisor::Groups(groups),
            Sampling::Poisson { .. } | Sampling::Allocate { .. } => Divisor::PublicConstant,
        }
    }

    /// The neighbour relation that is assumed where none is given.
    pub const fn usual_neighbours(&self) -> Neighbours {
        match self {
            Sampling::Subsample { .. } | Sampling::Shuffle { .. } => Neighbours::Substitute,
            Sampling::Poisson { .. } | Sampling::Allocate { .. } | Sampling::AllocateCells { .. } => {
                Neighbours::AddRemove
            }
        }
    }

    /// Refuses a neighbour relation under which no theorem covers this sampler.
    pub fn allows(&self, neighbours: Neighbours) -> Result<(), MechanismError> {
        match (self, neighbours) {
            (Sampling::Subsample { .. } | Sampling::Shuffle { .. }, Neighbours::Substitute)
            | (
                Sampling::Poisson { .. } | Sampling::Allocate { .. } | Sampling::AllocateCells { .. },
                Neighbours::Substitute | Neighbours::AddRemove,
            ) => Ok(()),
            (Sampling::Subsample { .. } | Sampling::Shuffle { .. }, Neighbours::AddRemove) => refuse(
                "neighbours",
                neighbours,
                format!("substitute with {} sampling", self.name()),
                "batches have a fixed size, so a removed sample is replaced by another; \
                 add-remove needs poisson or allocate sampling",
            ),
        }
    }

    /// Refuses the probabilistic filter of the paper's appendix where it is not analysed.
    pub fn allows_filter(&self) -> Result<(), MechanismError> {
        match self {
            Sampling::Subsample { .. }
            | Sampling::Shuffle { .. }
            | Sampling::Allocate { .. }
            | Sampling::AllocateCells { .. } => Ok(()),
            Sampling::Poisson { .. } => refuse(
                "filter",
                true,
                "off with poisson sampling",
                "Poisson sampling is itself a filter: halve the rate instead",
            ),
        }
    }

    /// Refuses sizes that cannot be sampled, or that are too small for g = `differing` samples.
    pub fn check(&self, differing: u64) -> Result<(), MechanismError> {
        match *self {
            Sampling::Subsample { samples, groups, group_size }
            | Sampling::Shuffle { samples, groups, group_size } => {
                check_sizes(FixedSizes { samples, groups, group_size }, differing)
            }
            Sampling::Poisson { rate } if (1e-10..=1.0).contains(&rate) => Ok(()),
            Sampling::Poisson { rate } => refuse(
                "rate",
                rate,
                "at least 1e-10 and at most 1",
                "it is the probability with which a round keeps a sample",
            ),
            Sampling::Allocate { rounds } if (1..=MOST_ROUNDS_PER_EPOCH).contains(&rounds) => Ok(()),
            Sampling::Allocate { rounds } => refuse(
                "rounds-per-epoch",
                rounds,
                format!("at least 1 and at most {MOST_ROUNDS_PER_EPOCH}"),
                "each sample of an epoch draws one of these rounds",
            ),
            Sampling::AllocateCells { rounds, groups, group_size } => check_cells(rounds, groups, group_size),
        }
    }

    /// The law of one round by itself.
    ///
    /// # Guarantee
    /// Exact for every round of every sampler: a round of a permutation is a uniform subset too, and a round
    /// of an allocation holds each sample independently with probability 1/B, in any of its cells alike.
    pub const fn round(&self) -> RoundDraw {
        match *self {
            Sampling::Subsample { samples, groups, group_size }
            | Sampling::Shuffle { samples, groups, group_size } => {
                RoundDraw::Subset(FixedSizes { samples, groups, group_size })
            }
            Sampling::Poisson { rate } => RoundDraw::EachSample { rate },
            Sampling::Allocate { rounds } => RoundDraw::EachSample { rate: 1.0 / rounds as f64 },
            Sampling::AllocateCells { rounds, groups, .. } => {
                RoundDraw::Cells { rate: 1.0 / rounds as f64, groups }
            }
        }
    }

    /// Which parts of a phase are independent.
    ///
    /// # Guarantee
    /// The law of c² of a phase is the convolution over these parts, and over nothing finer.
    pub const fn independent(&self) -> Independent {
        match *self {
            Sampling::Subsample { .. } | Sampling::Poisson { .. } => Independent::Rounds,
            Sampling::Shuffle { samples, groups, group_size } => {
                Independent::Epochs(EpochDraw::Permutation(FixedSizes { samples, groups, group_size }))
            }
            Sampling::Allocate { rounds } => {
                Independent::Epochs(EpochDraw::Allocation { rounds, cells: None })
            }
            Sampling::AllocateCells { rounds, groups, .. } => {
                Independent::Epochs(EpochDraw::Allocation { rounds, cells: Some(groups) })
            }
        }
    }

    /// The pair of one round or epoch for A₀, or why there is none.
    ///
    /// # Guarantee
    /// A pair is named only where composing it over the rounds, or epochs, dominates the run
    /// (docs/theory.md).
    pub const fn blind(&self) -> Blind {
        match *self {
            Sampling::Subsample { .. } => Blind::Halves,
            Sampling::Poisson { rate } => Blind::Line { rate },
            Sampling::Allocate { rounds } | Sampling::AllocateCells { rounds, .. } => {
                Blind::Allocation { rounds }
            }
            Sampling::Shuffle { .. } => Blind::Unsupported {
                what: "adversary A0 with shuffled batches",
                why: "the rounds of an epoch are dependent and no amplification theorem covers them; \
                      the guarantee for A1 is the guarantee",
            },
        }
    }

    /// Which of the paper's closed forms apply to this sampler.
    pub const fn paper_forms(&self) -> PaperForms {
        match *self {
            Sampling::Subsample { samples, groups, group_size } => {
                PaperForms::Subsampled(FixedSizes { samples, groups, group_size })
            }
            Sampling::Shuffle { samples, groups, group_size } => {
                PaperForms::Shuffled(FixedSizes { samples, groups, group_size })
            }
            Sampling::Poisson { .. } | Sampling::Allocate { .. } | Sampling::AllocateCells { .. } => {
                PaperForms::Absent
            }
        }
    }

    /// The same sampler with m = `groups`, or why its batch cannot be set that way.
    pub fn with_groups(self, groups: u64) -> Result<Self, MechanismError> {
        match self {
            Sampling::Subsample { samples, group_size, .. } => {
                Ok(Sampling::Subsample { samples, groups, group_size })
            }
            Sampling::Shuffle { samples, group_size, .. } => {
                Ok(Sampling::Shuffle { samples, groups, group_size })
            }
            Sampling::Poisson { .. } => refuse(
                "groups",
                groups,
                "subsample or shuffle",
                "the batch of poisson sampling is set by the rate, a public constant",
            ),
            Sampling::Allocate { .. } => refuse(
                "groups",
                groups,
                "subsample or shuffle",
                "the batch of allocate sampling is set by the rounds of an epoch, a public constant",
            ),
            Sampling::AllocateCells { .. } => refuse(
                "groups",
                groups,
                "subsample or shuffle",
                "the guarantee of allocate sampling depends on the rounds of an epoch, not on the cells",
            ),
        }
    }

    /// The same sampler over less data, with at most `rounds` rounds per epoch: m, s and the number of
    /// leftover samples stay; a Poisson rate is raised to 1/`rounds`; an allocation has min(B, `rounds`)
    /// rounds. For repeating a run many times.
    pub fn with_fewer_rounds(self, rounds: u64) -> Self {
        let fewer = |samples: u64, batch: u64| {
            let whole = samples.checked_div(batch).unwrap_or(0).min(rounds);
            whole * batch + samples.checked_rem(batch).unwrap_or(0)
        };
        match self {
            Sampling::Subsample { samples, groups, group_size } => {
                let samples = fewer(samples, groups.saturating_mul(group_size));
                Sampling::Subsample { samples, groups, group_size }
            }
            Sampling::Shuffle { samples, groups, group_size } => {
                let samples = fewer(samples, groups.saturating_mul(group_size));
                Sampling::Shuffle { samples, groups, group_size }
            }
            Sampling::Poisson { rate } => Sampling::Poisson { rate: rate.max(1.0 / rounds.max(1) as f64) },
            Sampling::Allocate { rounds: all } => Sampling::Allocate { rounds: all.min(rounds.max(1)) },
            Sampling::AllocateCells { rounds: all, groups, group_size } => {
                Sampling::AllocateCells { rounds: all.min(rounds.max(1)), groups, group_size }
            }
        }
    }
}

fn check_cells(rounds: u64, groups: u64, group_size: u64) -> Result<(), MechanismError> {
    for (name, value, least) in
        [("rounds-per-epoch", rounds, 1), ("groups", groups, 1), ("group-size", group_size, 2)]
    {
        if !(least..=MOST_ROUNDS_PER_EPOCH).contains(&value) {
            return refuse(
                name,
                value,
                format!("at least {least} and at most {MOST_ROUNDS_PER_EPOCH}"),
                "an epoch has B rounds of m cells, each with about s samples",
            );
        }
    }
    match rounds.checked_mul(groups) {
        Some(cells) if cells <= MOST_ROUNDS_PER_EPOCH => Ok(()),
        _ => refuse(
            "rounds-per-epoch × groups",
            format!("{rounds} × {groups}"),
            format!("at most {MOST_ROUNDS_PER_EPOCH}"),
            "each sample of an epoch draws one of these cells",
        ),
    }
}

fn check_sizes(sizes: FixedSizes, differing: u64) -> Result<(), MechanismError> {
    let FixedSizes { samples, groups, group_size } = sizes;
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
    if differing > samples {
        return refuse(
            "differing",
            differing,
            format!("at most samples = {samples}"),
            "no more samples can differ than there are",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
