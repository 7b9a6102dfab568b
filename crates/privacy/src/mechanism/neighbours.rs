//! Which data sets count as neighbours.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Which data sets count as neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Neighbours {
    /// `max{|d∖d'|, |d'∖d|} ≤ g`: up to g samples are replaced by others. The paper's relation.
    Substitute,
    /// Up to g samples are added or removed; the size of the data set changes. With poisson and allocate
    /// sampling.
    AddRemove,
}

impl Neighbours {
    /// The name used on the command line and in configuration files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Substitute => "substitute",
            Self::AddRemove => "add-remove",
        }
    }
}

impl fmt::Display for Neighbours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
