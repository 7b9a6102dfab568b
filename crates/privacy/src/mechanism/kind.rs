//! The samplers by name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{MechanismError, refuse};

/// Which sampler, without its sizes: what a flag or a configuration file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SamplingKind {
    /// Every round draws a fresh uniform subset of a fixed size.
    Subsample,
    /// Every epoch draws a permutation and cuts it into rounds.
    Shuffle,
    /// Every round keeps each sample independently with the same probability.
    Poisson,
    /// In every epoch each sample draws one round.
    Allocate,
}

impl SamplingKind {
    /// Every sampler, the default first.
    pub const ALL: [Self; 4] = [Self::Subsample, Self::Shuffle, Self::Poisson, Self::Allocate];

    /// The name used on the command line and in configuration files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Subsample => "subsample",
            Self::Shuffle => "shuffle",
            Self::Poisson => "poisson",
            Self::Allocate => "allocate",
        }
    }
}

impl fmt::Display for SamplingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SamplingKind {
    type Err = MechanismError;

    fn from_str(name: &str) -> Result<Self, MechanismError> {
        match Self::ALL.into_iter().find(|kind| kind.name() == name) {
            Some(kind) => Ok(kind),
            None => {
                let names = Self::ALL.map(Self::name).join(", ");
                refuse("sampling", name, format!("one of {names}"), "the guarantee depends on the sampler")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for kind in SamplingKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            let written = serde_json::to_string(&kind).unwrap();
            assert_eq!(written, format!("\"{}\"", kind.name()));
            assert_eq!(serde_json::from_str::<SamplingKind>(&written).unwrap(), kind);
        }
        let error = "random".parse::<SamplingKind>().unwrap_err().to_string();
        assert!(
            error.starts_with("sampling = random: one of subsample, shuffle, poisson, allocate"),
            "{error}"
        );
    }
}
