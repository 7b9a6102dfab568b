//! The directory of a run, and the order in which its files come into being.
//!
//! | file | what | written |
//! |---|---|---|
//! | `config.toml` | the whole configuration, canonical | once, before anything else |
//! | `ledger`, `ledger.head` | what is spent | before every round, see [`crate::ledger`] |
//! | `checkpoint` | what the run resumes from | at the start, and then from time to time |
//! | `metrics.jsonl` | one JSON object a line | as the run goes |
//! | `model.safetensors`, `report.html`, `summary.json` | the results | at the end |
//! | `lock` | empty; held by the process that trains | |

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dpsgd_privacy::mechanism::Mechanism;
use serde_json::{Map, Value, json};

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::ledger::storage::{Disk, FromIo, Storage, beside, directory_of, failed, replace};
use crate::ledger::{Header, History, Identity, Ledger, LedgerError};
use crate::plan::Plan;

/// The configuration.
pub const CONFIG: &str = "config.toml";
/// The ledger; its head is beside it.
pub const LEDGER: &str = "ledger";
/// The checkpoint.
pub const CHECKPOINT: &str = "checkpoint";
/// The metrics.
pub const METRICS: &str = "metrics.jsonl";
/// The trained model.
pub const MODEL: &str = "model.safetensors";
/// The report for people.
pub const REPORT: &str = "report.html";
/// The summary for programs.
pub const SUMMARY: &str = "summary.json";
const LOCK: &str = "lock";

/// Why a run directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// The disk did not do what was asked.
    #[error("{}: cannot {doing}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was asked.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A new run needs a directory of its own.
    #[error(
        "{}: is not an empty directory; resume the run in it, or choose another for a new one",
        .0.display()
    )]
    NotEmpty(PathBuf),
    /// There is no run there.
    #[error(
        "{}: is not the directory of a run ({missing} is missing); give the one that `dpsgd train` \
         made",
        path.display()
    )]
    NoRun {
        /// The directory.
        path: PathBuf,
        /// The file that every run has.
        missing: &'static str,
    },
    /// The run has not come so far, or somebody removed the file.
    #[error("{}: is missing; {}", path.display(), remedy(path))]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The configuration is not the one the run was started with.
    #[error(
        "{}: is damaged or belongs to another run (the ledger was begun with a different one); restore \
         it from a copy",
        .0.display()
    )]
    Config(PathBuf),
    /// What is in the metrics was not written by [`Metrics::append`].
    #[error(
        "{} is damaged, line {line}: it is not a measurement; restore the file from a copy, or \
         remove it and continue without the earlier measurements",
        path.display()
    )]
    Measurement {
        /// The metrics.
        path: PathBuf,
        /// Counted from one.
        line: usize,
    },
    /// Another process trains there.
    #[error("{}: another process is using this run; wait until it ends, or stop it", .0.display())]
    InUse(PathBuf),
    /// The directory was opened for reading.
    #[error("{}: was opened for reading only", .0.display())]
    NotLocked(PathBuf),
    /// See [`LedgerError`].
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// See [`CheckpointError`].
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

fn remedy(path: &Path) -> &'static str {
    match path.file_name().and_then(|name| name.to_str()) {
        Some(MODEL | REPORT | SUMMARY) => "it is written at the end of the run: resume the run to finish it",
        Some(METRICS) => "nothing was measured yet",
        _ => "restore it from a copy",
    }
}

impl FromIo for DirectoryError {
    fn from_io(path: PathBuf, doing: &'static str, source: io::Error) -> Self {
        Self::Io { path, doing, source }
    }
}

/// Replaces `path` by `bytes`: whenever the process dies or the power goes, the file is the old one or
/// the new one, whole. Where the disk is full, nothing is left beside it.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(&Disk, path, bytes).inspect_err(|_| {
        // Best effort: whatever is wrong with the disk is reported already.
        let _ = fs::remove_file(beside(path, ".new"));
    })
}

/// The directory of a run. While a value from [`RunDirectory::create`] or [`RunDirectory::open`] lives, no
/// other process gets one.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    /// The lock goes with the file, also when the process is killed.
    lock: Option<File>,
}

/// What an interrupted run resumes with.
#[derive(Debug)]
pub struct Resumed {
    /// The ledger; the next round is its [`Ledger::spent`].
    pub ledger: Ledger,
    /// The state to resume from. Its round is at most the ledger's: the updates between the two are
    /// lost, and paid for.
    pub checkpoint: Checkpoint,
    /// The metrics, with a line that says where the run was resumed.
    pub metrics: Metrics,
}

impl RunDirectory {
    /// Makes a directory for a new run, or takes an existing empty one.
    pub fn create(path: &Path) -> Result<Self, DirectoryError> {
        fs::create_dir_all(path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                DirectoryError::NotEmpty(path.to_owned())
            }
            _ => failed::<DirectoryError>(path, "create")(error),
        })?;
        // Looked at before anything is put into it, and again when nobody else can put anything.
        require_empty(path)?;
        let lock = acquire(path)?;
        require_empty(path)?;
        Disk.sync_directory(directory_of(path)).map_err(failed::<DirectoryError>(path, "sync"))?;
        Ok(Self { path: path.to_owned(), lock: Some(lock) })
    }

    /// Opens the directory of a run to work on it.
    pub fn open(path: &Path) -> Result<Self, DirectoryError> {
        let mut directory = Self::view(path)?;
        directory.lock = Some(acquire(path)?);
        Ok(directory)
    }

    /// Opens the directory of a run to read its files, also while another process trains there.
    pub fn view(path: &Path) -> Result<Self, DirectoryError> {
        for missing in [CONFIG, LEDGER] {
            if !path.join(missing).is_file() {
                return Err(DirectoryError::NoRun { path: path.to_owned(), missing });
            }
        }
        Ok(Self { path: path.to_owned(), lock: None })
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of one of its files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The content of one of its files.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, DirectoryError> {
        let path = self.file(name);
        fs::read(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => DirectoryError::Missing { path },
            _ => failed::<DirectoryError>(&path, "read")(error),
        })
    }

    /// The configuration.
    ///
    /// # Guarantee
    /// It is, byte for byte, the one with which the ledger was begun, or there is an error. So whoever reads
    /// the settings of a run from it reads those that are charged for, and a damaged file is named as such
    /// before anything is computed from it.
    pub fn config(&self) -> Result<Vec<u8>, DirectoryError> {
        let config = self.read(CONFIG)?;
        match History::begun_with(&self.file(LEDGER), &config)? {
            true => Ok(config),
            false => Err(DirectoryError::Config(self.file(CONFIG))),
        }
    }

    /// Writes one of its files, see [`write_atomically`].
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), DirectoryError> {
        let path = self.locked(name)?;
        write_atomically(&path, bytes).map_err(failed::<DirectoryError>(&path, "write"))
    }

    /// Replaces the checkpoint, see [`Checkpoint::write`].
    pub fn write_checkpoint(&self, checkpoint: &Checkpoint) -> Result<(), DirectoryError> {
        Ok(checkpoint.write(&self.locked(CHECKPOINT)?)?)
    }

    /// Begins a new run: writes the configuration and opens the ledger and the metrics. The run can be
    /// resumed once [`RunDirectory::write_checkpoint`] has been called; before that, nothing random should
    /// leave (noised statistics of the data belong in that checkpoint, so that they are never drawn again).
    ///
    /// # Guarantee
    /// The ledger owns the plan, charges its mechanism and is what the trainer reads the plan from.
    pub fn start(
        &self,
        config: &[u8],
        plan: Arc<Plan>,
        private: bool,
    ) -> Result<(Ledger, Metrics), DirectoryError> {
        self.write(CONFIG, config)?;
        let header = Header::new(config, plan, private);
        let ledger = Ledger::create(&self.file(LEDGER), header)?;
        let path = self.file(METRICS);
        let file = OpenOptions::new().append(true).create_new(true).open(&path);
        Ok((ledger, Metrics { file: file.map_err(failed::<DirectoryError>(&path, "create"))?, path }))
    }

    /// What the run has spent, verified; nothing is changed.
    pub fn history(&self, mechanism: &Mechanism, private: bool) -> Result<History, DirectoryError> {
        let identity = Identity::new(&self.read(CONFIG)?, mechanism.clone(), private);
        Ok(History::read(&self.file(LEDGER), &identity)?)
    }

    /// Resumes an interrupted run whose `config.toml` describes `plan`, with or without a seed of the user's.
    ///
    /// # Guarantee
    /// As [`Ledger::open`]; and a ledger that is shorter than it was when the checkpoint was taken or
    /// the last line of the metrics was written is refused, even if its head was shortened with it.
    pub fn resume(&self, plan: Arc<Plan>, private: bool) -> Result<Resumed, DirectoryError> {
        let path = self.locked(LEDGER)?;
        let history = self.history(plan.mechanism(), private)?;
        let checkpoint = Checkpoint::read(&self.file(CHECKPOINT))?;
        history.require(&path, &checkpoint.ledger, "the checkpoint")?;
        let (spent, last) = (history.spent(), history.position().sequence);
        let shortened = |witness| LedgerError::Shortened { path: path.clone(), last, witness };
        if checkpoint.round > spent {
            let witness = format!("the checkpoint is of round {} and {spent} are charged", checkpoint.round);
            return Err(shortened(witness).into());
        }
        let text = match self.read(METRICS) {
            Err(DirectoryError::Missing { .. }) => Vec::new(),
            other => other?,
        };
        if let Some(round) = last_round(&self.file(METRICS), &text)?.filter(|&round| round > spent) {
            let witness = format!("{METRICS} has reached round {round} and {spent} are charged");
            return Err(shortened(witness).into());
        }
        let header = Header::new(&self.read(CONFIG)?, plan, private);
        let ledger = Ledger::open(&path, header)?;
        let mut metrics = Metrics::open(self.file(METRICS), &text)?;
        let mut note = Map::new();
        note.insert("resumed".into(), json!(ledger.resumes()));
        note.insert("checkpoint_round".into(), json!(checkpoint.round));
        metrics.append(spent, note)?;
        Ok(Resumed { ledger, checkpoint, metrics })
    }

    fn locked(&self, name: &str) -> Result<PathBuf, DirectoryError> {
        match self.lock {
            Some(_) => Ok(self.file(name)),
            None => Err(DirectoryError::NotLocked(self.path.clone())),
        }
    }
}

impl Drop for RunDirectory {
    /// Closing the file is not enough: a process that was just forked holds a copy of it until it executes
    /// its program. The system unlocks by itself when the process ends without coming here.
    fn drop(&mut self) {
        if let Some(lock) = &self.lock {
            let _ = lock.unlock();
        }
    }
}

fn acquire(path: &Path) -> Result<File, DirectoryError> {
    let name = path.join(LOCK);
    let open = OpenOptions::new().write(true).create(true).truncate(false).open(&name);
    let file = open.map_err(failed::<DirectoryError>(&name, "open"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(DirectoryError::InUse(path.to_owned())),
        Err(TryLockError::Error(error)) => Err(failed::<DirectoryError>(&name, "lock")(error)),
    }
}

/// The lock does not count: a process that died before it wrote anything leaves it there.
fn require_empty(path: &Path) -> Result<(), DirectoryError> {
    for entry in fs::read_dir(path).map_err(failed::<DirectoryError>(path, "read"))? {
        if entry.map_err(failed::<DirectoryError>(path, "read"))?.file_name() != LOCK {
            return Err(DirectoryError::NotEmpty(path.to_owned()));
        }
    }
    Ok(())
}

/// The measurements of a run: one JSON object a line, each with `"round"`, the number of rounds done when
/// it was written. Lines of rounds that a crash lost stay; the line with `"resumed"` after them
/// says from which checkpoint the run went on.
#[derive(Debug)]
pub struct Metrics {
    file: File,
    path: PathBuf,
}

impl Metrics {
    /// Continues after `text`, the present content; an incomplete last line is cut off.
    fn open(path: PathBuf, text: &[u8]) -> Result<Self, DirectoryError> {
        let open = OpenOptions::new().append(true).create(true).open(&path);
        let file = open.map_err(failed::<DirectoryError>(&path, "open"))?;
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        if whole < text.len() {
            file.set_len(whole as u64)
                .map_err(failed::<DirectoryError>(&path, "cut an incomplete line off"))?;
        }
        Ok(Self { file, path })
    }

    /// Adds a line. It is not synced: measurements may be lost, the ledger may not.
    pub fn append(&mut self, round: u64, fields: Map<String, Value>) -> Result<(), DirectoryError> {
        let mut line = Map::new();
        line.insert("round".into(), json!(round));
        line.extend(fields);
        let text = format!("{}\n", Value::Object(line));
        self.file.write_all(text.as_bytes()).map_err(failed::<DirectoryError>(&self.path, "append"))
    }
}

/// The last round that a complete line tells of. Every complete line must tell of one: a damaged line would
/// be a silent witness, and who reads the measurements at the end of the run would only then refuse it.
fn last_round(path: &Path, text: &[u8]) -> Result<Option<u64>, DirectoryError> {
    let mut last = None;
    for (i, line) in text.split_inclusive(|&byte| byte == b'\n').enumerate() {
        if line.ends_with(b"\n") {
            let value = serde_json::from_slice::<Value>(line).ok();
            let round = value.and_then(|value| value.get("round")?.as_u64());
            let damaged = || DirectoryError::Measurement { path: path.to_owned(), line: i + 1 };
            last = last.max(Some(round.ok_or_else(damaged)?));
        }
    }
    Ok(last)
}
