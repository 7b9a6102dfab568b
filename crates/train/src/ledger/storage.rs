//! What the ledger and the checkpoint ask of a disk, so that a test can take the power away between
//! any two of these operations.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Files by path, with the two promises everything rests on: what was synced survives a loss of
/// power, and a rename is seen wholly or not at all.
pub trait Storage: Clone {
    /// An open file.
    type File: StoredFile;

    /// The whole content.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// A new, empty file; an existing one is an error.
    fn create_new(&self, path: &Path) -> io::Result<Self::File>;
    /// An empty file; an existing one is emptied.
    fn create(&self, path: &Path) -> io::Result<Self::File>;
    /// An existing file, to be written at its end.
    fn append(&self, path: &Path) -> io::Result<Self::File>;
    /// Gives a file another name, replacing what had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Returns when names given and taken in the directory survive a loss of power.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;
}

/// An open file of a [`Storage`].
pub trait StoredFile {
    /// Appends; a failure may leave any part of `bytes` behind.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Cuts the file to its first `length` bytes.
    fn cut(&mut self, length: u64) -> io::Result<()>;
    /// Returns when everything written survives a loss of power.
    fn sync(&mut self) -> io::Result<()>;
}

/// The file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Storage for Disk {
    type File = File;

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn create_new(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().append(true).create_new(true).open(path)
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        File::create(path)
    }

    fn append(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().append(true).open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        // Elsewhere a directory cannot be opened as a file, and a rename is logged by the system.
        if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
    }
}

impl StoredFile for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// An error that names the file and the operation that the system refused.
pub(crate) trait FromIo {
    fn from_io(path: PathBuf, doing: &'static str, source: io::Error) -> Self;
}

/// Names the file and the operation of a failure.
pub(crate) fn failed<E: FromIo>(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> E {
    let path = path.to_owned();
    move |source| E::from_io(path, doing, source)
}

/// `path` with `ending` appended to its last component.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}

/// The directory that holds `path`.
pub(crate) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Writes `bytes` beside `path`, synced, and returns the temporary name they have.
pub(crate) fn write_beside<S: Storage>(storage: &S, path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let fresh = beside(path, ".new");
    let mut file = storage.create(&fresh)?;
    file.write(bytes)?;
    file.sync()?;
    Ok(fresh)
}

/// Replaces `path` by `bytes`.
///
/// # Guarantee
/// Whenever the process dies or the power goes, `path` afterwards holds either its old content or
/// all of `bytes`; once this has returned without error, it holds `bytes`.
pub(crate) fn replace<S: Storage>(storage: &S, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = write_beside(storage, path, bytes)?;
    storage.rename(&fresh, path)?;
    storage.sync_directory(directory_of(path))
}
