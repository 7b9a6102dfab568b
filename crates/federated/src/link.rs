//! What the core asks of a transport.
//!
//! A transport has a durable log of updates, in which every entry has a sender that the transport vouches for;
//! the newest model; and one place for the coordinator's state that is replaced by compare-and-set, so that of
//! two coordinators one is turned away.

use std::error::Error;
use std::sync::Arc;

use crate::name::ClientId;

/// The client's end.
pub trait ClientLink {
    /// Why it did not work.
    type Error: Error + Send + Sync + 'static;

    /// Appends an update to the log under this client's identity. `Ok` means that the log holds it durably; after an
    /// error it may or may not, and the same bytes are sent again.
    fn publish(&mut self, update: &[u8]) -> Result<(), Self::Error>;

    /// The frame of the newest model that has arrived since the last call.
    fn newest_model(&mut self) -> Result<Option<Arc<[u8]>>, Self::Error>;
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place, from 1, without gaps.
    pub sequence: u64,
    /// Who sent it, by the identity that the transport verified, never by what the bytes say.
    pub sender: ClientId,
    /// What was sent.
    pub bytes: Arc<[u8]>,
}

/// The number of a saved state; the transport chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revision(pub u64);

/// Why a state was not saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveError<E: Error + 'static> {
    /// Another coordinator has saved a state: this one must stop.
    #[error("another coordinator has taken over this federation; this one stops")]
    Fenced,
    /// The transport failed. Whether the state was saved is not known: read it back.
    #[error(transparent)]
    Link(#[from] E),
}

/// The server's end.
pub trait ServerLink {
    /// Why it did not work.
    type Error: Error + Send + Sync + 'static;

    /// The saved state, if there is one.
    fn load(&mut self) -> Result<Option<(Revision, Vec<u8>)>, Self::Error>;

    /// Replaces the saved state if it still has the expected revision (`None`: if there is none). States and models
    /// are given away, because a copy of a large one is hundreds of megabytes.
    fn save(
        &mut self,
        expected: Option<Revision>,
        state: Vec<u8>,
    ) -> Result<Revision, SaveError<Self::Error>>;

    /// Up to `most` entries after this place, in order; empty if there are none yet.
    fn entries(&mut self, after: u64, most: usize) -> Result<Vec<Entry>, Self::Error>;

    /// Publishes the model of the saved or of a later state.
    fn publish_model(&mut self, frame: Vec<u8>) -> Result<(), Self::Error>;

    /// Entries up to this place are in the saved state and may be deleted.
    fn folded(&mut self, up_to: u64) -> Result<(), Self::Error>;
}
