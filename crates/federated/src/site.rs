//! The file of a member: everything it needs to take part, in one piece.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dpsgd::RawSettings;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::name::ClientId;
use crate::nats::{Habits, Identity};
use crate::terms::{Agreed, Terms, TermsError};
use crate::wire::model::{self, Model};

pub use crate::admission::check_settings;

/// Why the file of a member cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SiteError {
    /// It cannot be read.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Its terms make no sense.
    #[error("{}: [terms] {source}", path.display())]
    Terms {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: TermsError,
    },
}

/// `server.toml`: the coordinator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ServerFile {
    /// The initial model, beside this file.
    pub initial: PathBuf,
    /// The least milliseconds between two broadcasts of the model.
    pub broadcast_ms: u64,
    /// Whether updates stay in the log after they are folded, so that the run can be replayed. The broker's
    /// disk must hold them all.
    #[serde(default)]
    pub keep_log: bool,
    /// Where the broker is, and who we are.
    pub identity: Identity,
    /// What everybody agreed on.
    pub terms: Terms,
    /// The network and the public test set to measure the model on, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<RawSettings>,
}

/// `client-N.toml`: a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ClientFile {
    /// The number of the client.
    pub client: ClientId,
    /// Where the broker is, and who we are.
    pub identity: Identity,
    /// What everybody agreed on.
    pub terms: Terms,
    /// What `dpsgd join` trains with; flags win.
    pub train: RawSettings,
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, SiteError> {
    let refuse = |why: String| SiteError::File { path: path.to_owned(), why };
    let text = fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    // The message of the parser quotes the line, which may be one of a private key.
    toml::from_str(&text).map_err(|error| refuse(error.message().to_string()))
}

fn agreed(path: &Path, terms: &Terms) -> Result<Arc<Agreed>, SiteError> {
    let checked = Agreed::shared(terms.clone());
    checked.map_err(|source| SiteError::Terms { path: path.to_owned(), source })
}

impl ServerFile {
    /// Reads the file, its terms and the initial model.
    pub fn open(path: &Path) -> Result<(Self, Arc<Agreed>, Model), SiteError> {
        let file: Self = read(path)?;
        let terms = agreed(path, &file.terms)?;
        let initial = path.parent().unwrap_or(Path::new("")).join(&file.initial);
        let refuse = |why: String| SiteError::File { path: initial.clone(), why };
        let frame = fs::read(&initial).map_err(|error| refuse(error.to_string()))?;
        let model = model::decode(&frame, &terms).map_err(|error| refuse(error.to_string()))?;
        Ok((file, terms, model))
    }

    /// How the coordinator runs.
    pub fn habits(&self) -> Habits {
        Habits { pace: Duration::from_millis(self.broadcast_ms), keep_log: self.keep_log }
    }
}

impl ClientFile {
    /// Reads the file and its terms.
    pub fn open(path: &Path) -> Result<(Self, Arc<Agreed>), SiteError> {
        let file: Self = read(path)?;
        let terms = agreed(path, &file.terms)?;
        if !terms.has(file.client) {
            let why = format!("client = {}: the terms have clients 1 to {}", file.client, terms.clients);
            return Err(SiteError::File { path: path.to_owned(), why });
        }
        Ok((file, terms))
    }
}
