//! Somebody outside of the run directory who remembers how far its ledger has come.

use std::fmt::Debug;
use std::io;
use std::path::PathBuf;

use super::LedgerPosition;

/// How far a ledger has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Its last record.
    pub position: LedgerPosition,
    /// The rounds charged in all.
    pub charged: u64,
    /// Whether a private test set was measured, or may have been.
    pub measured: bool,
    /// Whether the run is closed.
    pub finished: bool,
}

/// Remembers how far a ledger has come, in a place that does not go back when the directory of the run does.
///
/// # Guarantee
/// The ledger tells its witness of every record after the record and its head are on the disk, and no round of
/// it happens before `remember` has returned `Ok`. So whatever may have left is known to the witness, and a
/// directory without the record that the witness knows is an older copy.
pub trait Witness: Debug + Send {
    /// Where it remembers, for messages.
    fn place(&self) -> PathBuf;

    /// Must be durable when it returns `Ok`. After an error the ledger permits no further round.
    fn remember(&mut self, standing: &Standing) -> io::Result<()>;
}
