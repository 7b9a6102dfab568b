//! A mechanism in a file: written with a version, read only through the check.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{Length, Mechanism, Neighbours, NoiseScale, PhaseConfig, RunConfig, Sampling};
use crate::version::Version;

/// The fields of a mechanism. Plain values come before lists and tables, as TOML requires.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: Version,
    neighbours: Neighbours,
    differing: u64,
    releases: Vec<f64>,
    phases: Vec<WrittenPhase>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPhase {
    rounds: u64,
    sigma: f64,
    filtered: bool,
    sampling: Sampling,
}

impl Serialize for Mechanism {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let phases = self.phases.iter().map(|phase| WrittenPhase {
            rounds: phase.rounds,
            sigma: phase.sigma,
            filtered: phase.filtered,
            sampling: phase.sampling,
        });
        Written {
            version: Version,
            neighbours: self.neighbours,
            differing: self.differing,
            releases: self.releases.clone(),
            phases: phases.collect(),
        }
        .serialize(serializer)
    }
}

/// # Guarantee
/// Whatever is read has passed [`RunConfig::check`] like any other run.
impl<'de> Deserialize<'de> for Mechanism {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Written::deserialize(deserializer)?;
        let phases = written.phases.into_iter().map(|phase| PhaseConfig {
            sampling: phase.sampling,
            length: Length::Rounds(phase.rounds),
            noise: NoiseScale::Sigma(phase.sigma),
            filtered: phase.filtered,
        });
        let config = RunConfig {
            phases: phases.collect(),
            neighbours: written.neighbours,
            differing: written.differing,
            releases: written.releases,
        };
        config.check().map_err(de::Error::custom)
    }
}
