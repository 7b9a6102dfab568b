//! Which run a ledger belongs to.

use std::fmt::Write;
use std::sync::Arc;

use dpsgd_privacy::mechanism::{EpochDraw, FixedSizes, Independent, Mechanism, RoundDraw};

use super::record::Digest;
use crate::plan::Plan;

/// What a ledger's first record says: what every later opening is compared with.
#[derive(Clone, Debug)]
pub struct Identity {
    config: Digest,
    mechanism: Mechanism,
    private: bool,
}

impl Identity {
    /// `config` is the canonical text of the whole configuration: if one byte of it changes, the
    /// ledger refuses to continue. `private` says that the randomness comes from the operating system and
    /// not from a seed of the user's, which makes a run reproducible and not private.
    pub fn new(config: &[u8], mechanism: Mechanism, private: bool) -> Self {
        Self { config: Digest::of(&[config]), mechanism, private }
    }

    /// The mechanism whose rounds are charged.
    pub fn mechanism(&self) -> &Mechanism {
        &self.mechanism
    }

    /// Whether the run's randomness is private.
    pub fn private(&self) -> bool {
        self.private
    }

    /// The first record; its fields are compared one by one, so that a refusal can name the one that differs.
    pub(crate) fn text(&self) -> String {
        format!(
            "run dpsgd-ledger=1 randomness={} rounds={} config={} mechanism={}",
            if self.private { "private" } else { "seeded" },
            self.mechanism.rounds(),
            self.config,
            Digest::of(&[canonical(&self.mechanism).as_bytes()]),
        )
    }
}

/// The run a ledger belongs to, with the plan that is trained.
///
/// # Guarantee
///
/// The mechanism in the record is the plan's: there is no other way to make a header.
#[derive(Clone, Debug)]
pub struct Header {
    identity: Identity,
    plan: Arc<Plan>,
}

impl Header {
    /// See [`Identity::new`]; the mechanism is that of the plan.
    pub fn new(config: &[u8], plan: Arc<Plan>, private: bool) -> Self {
        Self { identity: Identity::new(config, plan.mechanism().clone(), private), plan }
    }

    /// What the first record says.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The plan whose rounds are charged.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }
}

/// One text per mechanism: every value a guarantee depends on, floating-point numbers by their bits.
fn canonical(mechanism: &Mechanism) -> String {
    let mut text = format!("neighbours={} differing={}", mechanism.neighbours(), mechanism.differing());
    // Writing to a string cannot fail.
    for release in mechanism.releases() {
        let _ = write!(text, " release={:016x}", release.to_bits());
    }
    for phase in mechanism.phases() {
        let sampling = phase.sampling();
        let name = sampling.name();
        let _ = match (sampling.independent(), sampling.round()) {
            (Independent::Epochs(EpochDraw::Allocation { rounds, cells: None }), _) => {
                write!(text, "\n{name} {rounds}")
            }
            (Independent::Epochs(EpochDraw::Allocation { rounds, cells: Some(cells) }), _) => {
                write!(text, "\n{name} {rounds} cells={cells}")
            }
            (_, RoundDraw::Subset(FixedSizes { samples, groups, group_size })) => {
                write!(text, "\n{name} {samples} {groups} {group_size}")
            }
            (_, RoundDraw::Cells { rate, groups }) => {
                write!(text, "\n{name} {:016x} cells={groups}", rate.to_bits())
            }
            (_, RoundDraw::EachSample { rate }) => write!(text, "\n{name} {:016x}", rate.to_bits()),
        };
        let (rounds, sigma) = (phase.rounds(), phase.sigma().to_bits());
        let _ = write!(text, " rounds={rounds} sigma={sigma:016x} filtered={}", phase.filtered());
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use dpsgd_privacy::mechanism::{Length, Neighbours, NoiseScale, PhaseConfig, RunConfig, Sampling};

    use super::*;

    #[test]
    fn every_value_of_a_mechanism_changes_its_text() {
        let phase = |sampling, rounds, sigma, filtered| PhaseConfig {
            sampling,
            length: Length::Rounds(rounds),
            noise: NoiseScale::Sigma(sigma),
            filtered,
        };
        let subsample = |samples, groups, group_size| Sampling::Subsample { samples, groups, group_size };
        let shuffle = Sampling::Shuffle { samples: 100, groups: 5, group_size: 2 };
        let base = phase(subsample(100, 5, 2), 30, 2.0, false);
        let single = |phase| RunConfig::single(phase);
        let poisson = RunConfig::single(phase(Sampling::Poisson { rate: 0.1 }, 30, 2.0, false));
        let substituted = RunConfig { neighbours: Neighbours::Substitute, ..poisson.clone() };
        let allocated = single(phase(Sampling::Allocate { rounds: 10 }, 30, 2.0, false));
        let runs = [
            single(base),
            single(phase(subsample(101, 5, 2), 30, 2.0, false)),
            single(phase(subsample(100, 2, 5), 30, 2.0, false)),
            single(phase(shuffle, 30, 2.0, false)),
            single(phase(subsample(100, 5, 2), 31, 2.0, false)),
            single(phase(subsample(100, 5, 2), 30, 2.0_f64.next_up(), false)),
            single(phase(subsample(100, 5, 2), 30, 2.0, true)),
            RunConfig { differing: 2, ..single(base) },
            RunConfig { releases: vec![0.5], ..single(base) },
            RunConfig { releases: vec![0.5, 0.5], ..single(base) },
            RunConfig { phases: vec![base, base], ..single(base) },
            single(phase(Sampling::Poisson { rate: 0.1_f64.next_up() }, 30, 2.0, false)),
            poisson,
            substituted,
            allocated.clone(),
            single(phase(Sampling::Allocate { rounds: 11 }, 30, 2.0, false)),
            RunConfig { neighbours: Neighbours::Substitute, ..allocated },
        ];
        let texts: BTreeSet<String> = runs.iter().map(|run| canonical(&run.check().unwrap())).collect();
        assert_eq!(texts.len(), runs.len());
    }
}
