//! What all runs have spent, remembered outside of their directories.
//!
//! A directory with one file for each run, and a key:
//!
//! | file | what it is |
//! |---|---|
//! | `key` | 32 random bytes, for the digests of data sets; never leaves the machine |
//! | `runs/ID.json` | a run: its data set, its mechanism, how far its ledger has come |
//! | `runs/ID.lock` | held by the process that trains the run, in whichever copy of its directory |
//!
//! It knows three things that the directory of a run cannot know: whether the directory is an older copy of
//! itself, whether the data are those the run was begun with, and what other runs on the same data have spent.
//! It knows runs that were recorded in it, and no others; and who restores an old copy of it together with an
//! old copy of a run goes unnoticed.

mod entry;
mod recorded;
mod total;
mod words;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use dpsgd_train::Randomness;
use dpsgd_train::directory::write_atomically;
use dpsgd_train::ledger::{Digest, Standing, Witness};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

pub use self::entry::Entry;
pub use self::recorded::Seen;
pub(crate) use self::recorded::{Recording, entry, seen};
pub use self::total::{Total, total};
pub(crate) use self::words::statement;

use crate::Error;

/// The environment variable that names the place of the shared ledger.
pub const VARIABLE: &str = "DPSGD_LEDGER";
/// The value of the setting and of the variable that asks for no shared ledger.
pub const NONE: &str = "none";

const RUNS: &str = "runs";
const KEY: &str = "key";
const LOCK: &str = "lock";

/// Where the shared ledger is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Where `DPSGD_LEDGER` says; otherwise `dpsgd` in the user's directory for state.
    #[default]
    Usual,
    /// In this directory.
    At(PathBuf),
    /// Nowhere: nothing outside of the run directory remembers the run.
    Nowhere,
}

impl Place {
    /// What a setting or the variable says: a directory, or `none`.
    pub fn said(text: &Path) -> Self {
        if text == Path::new(NONE) { Place::Nowhere } else { Place::At(text.to_owned()) }
    }

    /// The directory; nothing for [`Place::Nowhere`].
    pub fn path(&self) -> Result<Option<PathBuf>, Error> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        match self {
            Place::At(path) => Ok(Some(path.clone())),
            Place::Nowhere => Ok(None),
            Place::Usual => {
                if let Some(said) = variable(VARIABLE) {
                    return Place::said(Path::new(&said)).path();
                }
                let state = variable("XDG_STATE_HOME").map(PathBuf::from);
                let state = state.filter(|path| path.is_absolute());
                let home = || Some(PathBuf::from(variable("HOME")?).join(".local/state"));
                let windows = || variable("LOCALAPPDATA").map(PathBuf::from);
                match state.or_else(home).or_else(windows) {
                    Some(state) => Ok(Some(state.join("dpsgd"))),
                    None => Err(Error::Refused(format!(
                        "ledger: this user has no home directory for the shared ledger; give --ledger DIR or \
                         {VARIABLE} a directory that outlives the run, or --ledger {NONE} to train without one"
                    ))),
                }
            }
        }
    }
}

/// The shared ledger, opened.
#[derive(Clone, Debug)]
pub struct SharedLedger {
    path: PathBuf,
}

/// What a resumed run does when its directory is an older copy of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rollback {
    /// It refuses.
    #[default]
    Refuse,
    /// It counts what the newer copy had charged, and goes on after that.
    Charge,
}

impl SharedLedger {
    /// Opens the shared ledger to record runs, and makes it if there is none; nothing for [`Place::Nowhere`].
    pub fn open(place: &Place) -> Result<Option<Self>, Error> {
        let Some(path) = place.path()? else { return Ok(None) };
        let ledger = Self { path };
        ledger.make().map_err(|source| Error::SharedLedger { path: ledger.path.clone(), source })?;
        Ok(Some(ledger))
    }

    /// Opens the shared ledger to read it; nothing if there is none.
    pub fn view(place: &Place) -> Result<Option<Self>, Error> {
        Ok(place.path()?.filter(|path| path.join(RUNS).is_dir()).map(|path| Self { path }))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Under a lock, so that two first runs agree on the key.
    fn make(&self) -> io::Result<()> {
        for directory in [&self.path, &self.path.join(RUNS)] {
            only_for_the_owner().create(directory)?;
        }
        let lock = OpenOptions::new().write(true).create(true).truncate(false).open(self.path.join(LOCK))?;
        lock.lock()?;
        if !self.path.join(KEY).exists() {
            let key = fresh_bytes::<32>().map_err(io::Error::other)?;
            write_atomically(&self.path.join(KEY), format!("{}\n", Digest(key)).as_bytes())?;
        }
        lock.unlock()
    }

    /// The digest of a data set under the key of this ledger: it tells whether two data sets are the same, to
    /// those who have the key and to nobody else.
    pub fn keyed(&self, data: &Digest) -> Result<Digest, Error> {
        let path = self.path.join(KEY);
        let text = fs::read_to_string(&path).map_err(Error::io(&path))?;
        let key: Digest = text
            .trim_end()
            .parse()
            .map_err(|_| Error::file(&path, "is not a key; restore it from a copy"))?;
        // HMAC takes keys of any length.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&key.0) else {
            return Err(Error::file(&path, "is not a key"));
        };
        mac.update(&data.0);
        Ok(Digest(mac.finalize().into_bytes().into()))
    }

    /// Every run that is recorded, in the order in which they began.
    pub fn entries(&self) -> Result<Vec<Entry>, Error> {
        let runs = self.path.join(RUNS);
        let mut entries = Vec::new();
        for file in fs::read_dir(&runs).map_err(Error::io(&runs))? {
            let path = file.map_err(Error::io(&runs))?.path();
            if path.extension().is_some_and(|ending| ending == "json") {
                entries.push(Entry::read(&path)?);
            }
        }
        entries.sort_by(|a, b| (a.begun, &a.run).cmp(&(b.begun, &b.run)));
        Ok(entries)
    }

    /// What is known of a run.
    pub fn entry(&self, run: &str) -> Result<Option<Entry>, Error> {
        let path = self.file(run, "json");
        if path.exists() { Entry::read(&path).map(Some) } else { Ok(None) }
    }

    fn file(&self, run: &str, ending: &str) -> PathBuf {
        self.path.join(RUNS).join(format!("{run}.{ending}"))
    }

    /// Takes the run for this process, so that no copy of its directory is trained at the same time. What is
    /// known of it is read again under the lock; `entry` is for a run that is not known yet.
    pub(crate) fn record(&self, entry: Entry) -> Result<Recorder, Error> {
        let refuse = |source| Error::SharedLedger { path: self.path.clone(), source };
        let path = self.file(&entry.run, "lock");
        let lock = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let lock = lock.map_err(refuse)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::file(
                    &path,
                    "another process trains this run, perhaps in a copy of its directory; wait for its end",
                ));
            }
            Err(TryLockError::Error(error)) => return Err(refuse(error)),
        }
        let entry = self.entry(&entry.run)?.unwrap_or(entry);
        Ok(Recorder { path: self.file(&entry.run, "json"), entry, lock })
    }

    /// Forgets a run that could not begin: none of its rounds happened.
    pub(crate) fn forget(&self, run: &str) {
        for ending in ["json", "lock"] {
            let _ = fs::remove_file(self.file(run, ending));
        }
    }
}

/// Writes down how far the ledger of a run has come, as its witness.
#[derive(Debug)]
pub(crate) struct Recorder {
    path: PathBuf,
    entry: Entry,
    lock: File,
}

impl Witness for Recorder {
    fn place(&self) -> PathBuf {
        self.path.clone()
    }

    fn remember(&mut self, standing: &Standing) -> io::Result<()> {
        self.entry.stands_at(standing);
        write_atomically(&self.path, self.entry.text().as_bytes())
    }
}

impl Drop for Recorder {
    /// As the lock of a run directory: a process that was just forked would hold it on.
    fn drop(&mut self) {
        let _ = self.lock.unlock();
    }
}

/// A name for a run that no other run has.
pub(crate) fn fresh_name() -> Result<String, Error> {
    let bytes = fresh_bytes::<16>()?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn fresh_bytes<const L: usize>() -> Result<[u8; L], dpsgd_train::NoEntropy> {
    let mut stream = Randomness::from_system()?.stream(dpsgd_train::Purpose::Splitting, 0);
    let mut bytes = [0; L];
    for eight in bytes.chunks_mut(8) {
        let drawn = stream.bits64().to_le_bytes();
        eight.copy_from_slice(&drawn[..eight.len()]);
    }
    Ok(bytes)
}

/// Makes directories that nobody else may read, where the system knows such a thing.
fn only_for_the_owner() -> fs::DirBuilder {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true);
    builder
}
