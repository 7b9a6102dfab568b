//! The link inside one process, for simulations and tests.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::link::{ClientLink, Entry, Revision, SaveError, ServerLink};
use crate::name::ClientId;

/// A log, a model and a saved state in memory. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    /// Entries that have not been deleted.
    log: Vec<Entry>,
    deleted: u64,
    model: Option<Arc<[u8]>>,
    models: u64,
    state: Option<(u64, Vec<u8>)>,
}

impl Memory {
    /// The end of one client; the identity cannot be changed afterwards.
    pub fn client(&self, id: ClientId) -> MemoryClient {
        MemoryClient { memory: self.clone(), id, seen: 0 }
    }

    /// How many entries the log has had.
    pub fn entries_in_all(&self) -> u64 {
        let shared = self.shared();
        shared.deleted + shared.log.len() as u64
    }

    /// The newest published model.
    pub fn model(&self) -> Option<Arc<[u8]>> {
        self.shared().model.clone()
    }

    /// How many models have been published.
    pub fn models(&self) -> u64 {
        self.shared().models
    }

    /// Appends an entry, as a client does.
    pub fn append(&self, sender: ClientId, bytes: Arc<[u8]>) -> u64 {
        let mut shared = self.shared();
        let sequence = shared.deleted + shared.log.len() as u64 + 1;
        shared.log.push(Entry { sequence, sender, bytes });
        sequence
    }

    /// A poisoned lock is harmless: every change is one assignment or one push.
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of one client.
#[derive(Clone, Debug)]
pub struct MemoryClient {
    memory: Memory,
    id: ClientId,
    seen: u64,
}

impl ClientLink for MemoryClient {
    type Error = Infallible;

    fn publish(&mut self, update: &[u8]) -> Result<(), Infallible> {
        self.memory.append(self.id, update.into());
        Ok(())
    }

    fn newest_model(&mut self) -> Result<Option<Arc<[u8]>>, Infallible> {
        let shared = self.memory.shared();
        let fresh = std::mem::replace(&mut self.seen, shared.models) != shared.models;
        Ok(shared.model.clone().filter(|_| fresh))
    }
}

impl ServerLink for Memory {
    type Error = Infallible;

    fn load(&mut self) -> Result<Option<(Revision, Vec<u8>)>, Infallible> {
        Ok(self.shared().state.clone().map(|(revision, state)| (Revision(revision), state)))
    }

    fn save(
        &mut self,
        expected: Option<Revision>,
        state: Vec<u8>,
    ) -> Result<Revision, SaveError<Infallible>> {
        let mut shared = self.shared();
        if shared.state.as_ref().map(|(revision, _)| Revision(*revision)) != expected {
            return Err(SaveError::Fenced);
        }
        let next = expected.map_or(1, |before| before.0 + 1);
        shared.state = Some((next, state));
        Ok(Revision(next))
    }

    fn entries(&mut self, after: u64, most: usize) -> Result<Vec<Entry>, Infallible> {
        let shared = self.shared();
        let skipped = after.saturating_sub(shared.deleted) as usize;
        Ok(shared.log.iter().skip(skipped).take(most).cloned().collect())
    }

    fn publish_model(&mut self, frame: Vec<u8>) -> Result<(), Infallible> {
        let mut shared = self.shared();
        shared.model = Some(frame.into());
        shared.models += 1;
        Ok(())
    }

    fn folded(&mut self, up_to: u64) -> Result<(), Infallible> {
        let mut shared = self.shared();
        let count = (up_to.saturating_sub(shared.deleted) as usize).min(shared.log.len());
        shared.log.drain(..count);
        shared.deleted += count as u64;
        Ok(())
    }
}
