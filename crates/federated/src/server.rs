//! The coordinator over a link: fold, save, publish.

use std::error::Error;
use std::sync::Arc;

use crate::coordinator::{Coordinator, Gap, InitialRefused, Outcome};
use crate::link::{Entry, Revision, SaveError, ServerLink};
use crate::terms::Agreed;
use crate::wire::state::StateRefused;

/// How many entries are asked for at a time.
const BATCH: usize = 64;

/// Why a server stops.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError<E: Error + 'static> {
    /// The transport failed.
    #[error(transparent)]
    Link(E),
    /// Another coordinator has taken over.
    #[error("another coordinator has taken over this federation; this one stops")]
    Fenced,
    /// Entries of the log are missing.
    #[error(transparent)]
    Gap(#[from] Gap),
    /// The saved state is not one of these terms.
    #[error(transparent)]
    State(#[from] StateRefused),
    /// The initial model is not one of these terms.
    #[error(transparent)]
    Initial(#[from] InitialRefused),
}

/// The coordinator over a link.
///
/// # Guarantee
///
/// The state is saved whole, with the place in the log it stands for, by compare-and-set. So a server that is
/// killed at any moment and started again folds every entry exactly once, and of two servers one is stopped
/// at its next save. Models are published after the state that they belong to was saved, so that no client
/// ever sees a version that a restart takes back.
pub struct Server<L: ServerLink> {
    link: L,
    coordinator: Coordinator,
    revision: Revision,
    unsaved: u64,
    save_every: u64,
    published: Option<u64>,
}

impl<L: ServerLink> Server<L> {
    /// Goes on from the saved state, or begins with `initial` as version 0. The state is saved, and a model
    /// published, at the latest after `save_every` entries of the log.
    pub fn open(
        mut link: L,
        terms: Arc<Agreed>,
        initial: impl FnOnce() -> Vec<f32>,
        save_every: u64,
    ) -> Result<Self, ServerError<L::Error>> {
        let (coordinator, revision) = match link.load().map_err(ServerError::Link)? {
            Some((revision, saved)) => (Coordinator::restore(terms, &saved)?, revision),
            None => {
                let coordinator = Coordinator::new(terms, initial())?;
                let saved = link.save(None, coordinator.snapshot());
                let revision = saved.map_err(failed)?;
                (coordinator, revision)
            }
        };
        let save_every = save_every.max(1);
        let mut server = Self { link, coordinator, revision, unsaved: 0, save_every, published: None };
        server.publish()?;
        Ok(server)
    }

    /// Folds what the log holds now, tells `saw` of every entry, and saves; how many entries there were.
    pub fn fold(
        &mut self,
        saw: impl FnMut(&Entry, Outcome, &Coordinator),
    ) -> Result<u64, ServerError<L::Error>> {
        let folded = self.read(saw)?;
        self.save()?;
        Ok(folded)
    }

    /// [`Server::fold`] that saves only every `save_every` entries: the last ones may be folded again after a
    /// crash, and their model is not published yet.
    pub fn read(
        &mut self,
        mut saw: impl FnMut(&Entry, Outcome, &Coordinator),
    ) -> Result<u64, ServerError<L::Error>> {
        let mut folded = 0;
        loop {
            let after = self.coordinator.state().sequence;
            let entries = self.link.entries(after, BATCH).map_err(ServerError::Link)?;
            if entries.is_empty() {
                break;
            }
            for entry in entries {
                let outcome = self.coordinator.apply(entry.sequence, entry.sender, &entry.bytes)?;
                saw(&entry, outcome, &self.coordinator);
                folded += 1;
                self.unsaved += 1;
                if self.unsaved >= self.save_every {
                    self.save()?;
                }
            }
        }
        Ok(folded)
    }

    /// Saves the state if it has changed, then publishes its model.
    pub fn save(&mut self) -> Result<(), ServerError<L::Error>> {
        if self.unsaved > 0 {
            let saved = self.link.save(Some(self.revision), self.coordinator.snapshot());
            self.revision = saved.map_err(failed)?;
            self.unsaved = 0;
            self.link.folded(self.coordinator.state().sequence).map_err(ServerError::Link)?;
        }
        self.publish()
    }

    fn publish(&mut self) -> Result<(), ServerError<L::Error>> {
        let version = self.coordinator.state().version;
        if self.published != Some(version) {
            self.link.publish_model(self.coordinator.model_frame()).map_err(ServerError::Link)?;
            self.published = Some(version);
        }
        Ok(())
    }

    /// The coordinator.
    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// The link.
    pub fn link(&mut self) -> &mut L {
        &mut self.link
    }
}

fn failed<E: Error + 'static>(error: SaveError<E>) -> ServerError<E> {
    match error {
        SaveError::Fenced => ServerError::Fenced,
        SaveError::Link(error) => ServerError::Link(error),
    }
}
