//! The state a run resumes from after an interruption.
//!
//! Everything here has been released or is computed from what has been: weights, the state of the outer
//! optimizer and of the schedules. The key of the random numbers is not: a new process takes a new key
//! from the system, so no noise can be drawn twice. How much was spent is not here either; that
//! is the ledger's alone. A checkpoint only remembers a record of the ledger, as a witness against
//! shortening it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::ledger::storage::{Disk, FromIo, Storage, beside, directory_of, failed, write_beside};
use crate::ledger::{Digest, LedgerPosition};

const MAGIC: &[u8] = b"dpsgd checkpoint 1\n";
const PREVIOUS_ENDING: &str = ".previous";

/// The state of a run after its first `round` rounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checkpoint {
    /// The rounds whose updates are in the weights, counted over all phases; those that a crash lost are
    /// counted too.
    pub round: u64,
    /// The epochs before it.
    pub epoch: u64,
    /// The last record of the ledger when this was taken.
    pub ledger: LedgerPosition,
    /// Weights and other vectors by name.
    pub vectors: BTreeMap<String, Vec<f32>>,
    /// Seconds, step sizes and other numbers by name.
    pub numbers: BTreeMap<String, f64>,
}

/// Why a checkpoint was not written or not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The disk did not do what was asked.
    #[error("{}: cannot {doing}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was asked.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// There is none.
    #[error("{}: is missing, so there is nothing to go on from; start a new run", .0.display())]
    Missing(PathBuf),
    /// What is in the file was not written by [`Checkpoint::write`].
    #[error("{} is damaged ({why}); {remedy}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: &'static str,
        /// What to do.
        remedy: String,
    },
}

impl Checkpoint {
    /// Replaces the checkpoint at `path`; the one that was there stays beside it as `….previous`.
    ///
    /// # Guarantee
    /// Whenever the process dies or the power goes, [`Checkpoint::read`] afterwards finds the old
    /// checkpoint or this one, whole. Once this has returned without error, it finds this one.
    pub fn write(&self, path: &Path) -> Result<(), CheckpointError> {
        self.write_in(&Disk, path)
    }

    /// [`Checkpoint::write`] on any storage.
    pub fn write_in<S: Storage>(&self, storage: &S, path: &Path) -> Result<(), CheckpointError> {
        let step = || -> io::Result<()> {
            let fresh = write_beside(storage, path, &self.to_bytes())?;
            match storage.rename(path, &beside(path, PREVIOUS_ENDING)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
            storage.rename(&fresh, path)?;
            storage.sync_directory(directory_of(path))
        };
        step().map_err(failed(path, "write"))
    }

    /// The newest checkpoint at `path`.
    ///
    /// If it is damaged, that is an error even if the one before it is whole: going back loses training for
    /// which privacy has been paid, so a person decides on it. (If there is none but the one before it, the
    /// process died while it exchanged them, and the one before it is the newest.)
    pub fn read(path: &Path) -> Result<Self, CheckpointError> {
        Self::read_in(&Disk, path)
    }

    /// [`Checkpoint::read`] on any storage.
    pub fn read_in<S: Storage>(storage: &S, path: &Path) -> Result<Self, CheckpointError> {
        let previous = beside(path, PREVIOUS_ENDING);
        let load = |path: &Path| match storage.read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some).map_err(failed(path, "read")),
        };
        let (found, bytes) = match (load(path)?, load(&previous)?) {
            (Some(bytes), older) => {
                let remedy = || match older.as_deref().map(Self::from_bytes) {
                    Some(Ok(older)) => format!(
                        "rename {} to {} to go on from round {}; all rounds since stay spent",
                        previous.display(),
                        path.display(),
                        older.round
                    ),
                    _ => "restore it from a copy; the run cannot continue without it".to_owned(),
                };
                return Self::from_bytes(&bytes).map_err(|why| CheckpointError::Damaged {
                    path: path.to_owned(),
                    why,
                    remedy: remedy(),
                });
            }
            (None, Some(bytes)) => (previous, bytes),
            (None, None) => return Err(CheckpointError::Missing(path.to_owned())),
        };
        let remedy = "restore it from a copy; the run cannot continue without it".to_owned();
        Self::from_bytes(&bytes).map_err(|why| CheckpointError::Damaged { path: found, why, remedy })
    }

    /// Little-endian numbers, names and vectors after their lengths, and the SHA-256 of all of it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let number = |bytes: &mut Vec<u8>, value: u64| bytes.extend(value.to_le_bytes());
        let text = |bytes: &mut Vec<u8>, value: &str| {
            number(bytes, value.len() as u64);
            bytes.extend(value.as_bytes());
        };
        number(&mut bytes, self.round);
        number(&mut bytes, self.epoch);
        number(&mut bytes, self.ledger.sequence);
        bytes.extend(self.ledger.digest.0);
        number(&mut bytes, self.vectors.len() as u64);
        for (name, vector) in &self.vectors {
            text(&mut bytes, name);
            number(&mut bytes, vector.len() as u64);
            bytes.reserve(4 * vector.len());
            bytes.extend(vector.iter().flat_map(|value| value.to_le_bytes()));
        }
        number(&mut bytes, self.numbers.len() as u64);
        for (name, value) in &self.numbers {
            text(&mut bytes, name);
            bytes.extend(value.to_le_bytes());
        }
        let digest = Digest::of(&[&bytes]);
        bytes.extend(digest.0);
        bytes
    }

    /// Reads what [`Checkpoint::to_bytes`] writes, or says what is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, &'static str> {
        let Some(content) = bytes.strip_prefix(MAGIC) else {
            return Err("it does not begin as a checkpoint of this version");
        };
        let Some((content, digest)) = content.split_last_chunk::<32>() else {
            return Err("it is too short");
        };
        if Digest::of(&[MAGIC, content]).0 != *digest {
            return Err("its content does not fit its digest");
        }
        let mut reader = Reader(content);
        let checkpoint = reader.checkpoint().ok_or("its lengths do not fit its content")?;
        if reader.0.is_empty() { Ok(checkpoint) } else { Err("it is too long") }
    }
}

/// What has not been read yet. Lengths are compared with it before anything is allocated.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const L: usize>(&mut self) -> Option<[u8; L]> {
        self.take(L as u64)?.try_into().ok()
    }

    fn number(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<String> {
        let length = self.number()?;
        String::from_utf8(self.take(length)?.to_vec()).ok()
    }

    fn checkpoint(&mut self) -> Option<Checkpoint> {
        let mut checkpoint = Checkpoint {
            round: self.number()?,
            epoch: self.number()?,
            ledger: LedgerPosition { sequence: self.number()?, digest: Digest(self.array()?) },
            ..Checkpoint::default()
        };
        for _ in 0..self.number()? {
            let (name, length) = (self.text()?, self.number()?);
            let (values, _) = self.take(length.checked_mul(4)?)?.as_chunks();
            checkpoint.vectors.insert(name, values.iter().map(|&value| f32::from_le_bytes(value)).collect());
        }
        for _ in 0..self.number()? {
            let (name, value) = (self.text()?, self.array()?);
            checkpoint.numbers.insert(name, f64::from_le_bytes(value));
        }
        Some(checkpoint)
    }
}

impl FromIo for CheckpointError {
    fn from_io(path: PathBuf, doing: &'static str, source: io::Error) -> Self {
        Self::Io { path, doing, source }
    }
}
