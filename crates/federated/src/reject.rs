//! Why an update is not folded.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why an update was rejected. The numbers are part of the format of saved states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Reject {
    /// Not a frame of an update in a format we know, or of the wrong length.
    Format = 1,
    /// The SHA-256 at its end does not fit.
    Checksum = 2,
    /// Of another run: its sender holds other terms.
    Run = 3,
    /// The sender that the transport names is not the client that the frame names, or is not in the terms.
    Sender = 4,
    /// Its η is not the one of the terms.
    Step = 5,
    /// It has the wrong number of coordinates.
    Dimension = 6,
    /// A coordinate is infinite or not a number.
    NotFinite = 7,
    /// Its norm is not that of an honest noised update.
    Norm = 8,
    /// A coordinate is larger than one of an honest noised update.
    Coordinate = 9,
    /// This round of the client has been folded already, or is too old to tell.
    Replayed = 10,
    /// Its round is beyond the plan of the terms.
    BeyondPlan = 11,
    /// It claims to start from a model that does not exist yet.
    FromFuture = 12,
    /// The model it started from is too old.
    Stale = 13,
}

impl Reject {
    /// Every reason.
    pub const ALL: [Reject; 13] = [
        Reject::Format,
        Reject::Checksum,
        Reject::Run,
        Reject::Sender,
        Reject::Step,
        Reject::Dimension,
        Reject::NotFinite,
        Reject::Norm,
        Reject::Coordinate,
        Reject::Replayed,
        Reject::BeyondPlan,
        Reject::FromFuture,
        Reject::Stale,
    ];

    /// Its name in JSON and reports.
    pub fn name(self) -> &'static str {
        match self {
            Reject::Format => "format",
            Reject::Checksum => "checksum",
            Reject::Run => "run",
            Reject::Sender => "sender",
            Reject::Step => "step",
            Reject::Dimension => "dimension",
            Reject::NotFinite => "not-finite",
            Reject::Norm => "norm",
            Reject::Coordinate => "coordinate",
            Reject::Replayed => "replayed",
            Reject::BeyondPlan => "beyond-plan",
            Reject::FromFuture => "from-future",
            Reject::Stale => "stale",
        }
    }

    /// The reason with this number.
    pub fn numbered(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|reject| *reject as u8 == number)
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
