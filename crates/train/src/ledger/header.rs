//! Which run a ledger belongs to.

use std::fmt::Write;

use dpsgd_privacy::mechanism::{Mechanism, Sampling};

use super::blocks::rounds;
use super::record::Digest;

/// The run a ledger belongs to: the first record, and what every later opening is compared with.
#[derive(Clone, Debug)]
pub struct Header {
    config: Digest,
    mechanism: Mechanism,
    private: bool,
}

impl Header {
    /// `config` is the canonical text of the whole configuration: if one byte of it changes, the
    /// ledger refuses to go on. `private` says that the randomness comes from the operating system and
    /// not from a seed of the user's, which makes a run reproducible and not private.
    pub fn new(config: &[u8], mechanism: Mechanism, private: bool) -> Self {
        Self { config: Digest::of(&[config]), mechanism, private }
    }

    /// The mechanism whose rounds are charged.
    pub fn mechanism(&self) -> &Mechanism {
        &self.mechanism
    }

    /// The first record; its fields are compared one by one, so that a refusal can name the one.
    pub(crate) fn text(&self) -> String {
        format!(
            "run dpsgd-ledger=1 randomness={} rounds={} config={} mechanism={}",
            if self.private { "private" } else { "seeded" },
            rounds(&self.mechanism),
            self.config,
            Digest::of(&[canonical(&self.mechanism).as_bytes()]),
        )
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
        let _ = match sampling {
            Sampling::Subsample { samples, groups, group_size }
            | Sampling::Shuffle { samples, groups, group_size } => {
                write!(text, "\n{} {samples} {groups} {group_size}", sampling.name())
            }
            Sampling::Poisson { rate } => write!(text, "\n{} {:016x}", sampling.name(), rate.to_bits()),
        };
        let (rounds, sigma) = (phase.rounds(), phase.sigma().to_bits());
        let _ = write!(text, " rounds={rounds} sigma={sigma:016x} filtered={}", phase.filtered());
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use dpsgd_privacy::mechanism::{Length, Noise, PhaseConfig, RunConfig};

    use super::*;

    #[test]
    fn every_value_of_a_mechanism_changes_its_text() {
        let phase = |sampling, rounds, sigma, filtered| PhaseConfig {
            sampling,
            length: Length::Rounds(rounds),
            noise: Noise::Sigma(sigma),
            filtered,
        };
        let subsample = |samples, groups, group_size| Sampling::Subsample { samples, groups, group_size };
        let shuffle = Sampling::Shuffle { samples: 100, groups: 5, group_size: 2 };
        let base = phase(subsample(100, 5, 2), 30, 2.0, false);
        let single = |phase| RunConfig::single(phase);
        let poisson = RunConfig::single(phase(Sampling::Poisson { rate: 0.1 }, 30, 2.0, false));
        let mut substituted = poisson.clone();
        substituted.neighbours = dpsgd_privacy::mechanism::Neighbours::Substitute;
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
        ];
        let texts: BTreeSet<String> = runs.iter().map(|run| canonical(&run.check().unwrap())).collect();
        assert_eq!(texts.len(), runs.len());
    }
}
