//! Features on disk, so that they are computed once.
//!
//! A file holds the features of one set, named after a digest of its samples and of everything that the
//! features depend on, with a checksum at its end. What does not match is computed again. The file says as
//! much about the samples as the samples do: where they are private, it is too.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::Features;
use crate::dataset::Dataset;
use crate::half::Half;

/// The first bytes of a file, and the version of what is in it: a change of any feature counts up.
const MAGIC: &[u8; 16] = b"dpsgd features 1";
/// Bytes that are read or written at a time.
const CHUNK: usize = 1 << 20;
const CHECKSUM: usize = 32;

/// A directory of features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    directory: PathBuf,
}

impl Cache {
    /// In a directory, which is made when something is kept.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// `dpsgd` in the user's directory for caches; none if there is no such directory.
    pub fn usual() -> Option<Self> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let set = variable("XDG_CACHE_HOME").filter(|path| path.is_absolute());
        let home = || Some(variable("HOME")?.join(".cache"));
        let windows = || variable("LOCALAPPDATA");
        Some(Self::new(set.or_else(home).or_else(windows)?.join("dpsgd")))
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn path(&self, features: Features, set: &Dataset) -> PathBuf {
        let mut key = Sha256::new();
        key.update(MAGIC);
        key.update(features.transform());
        set.shape().iter().for_each(|&side| key.update((side as u64).to_le_bytes()));
        set.each_row(|row| key.update(row));
        let name: String = key.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        self.directory.join(format!("{name}.features"))
    }

    /// The features of a set, `length` numbers, if they are there and undamaged.
    pub(super) fn read(&self, features: Features, set: &Dataset, length: usize) -> Option<Vec<Half>> {
        let mut file = File::open(self.path(features, set)).ok()?;
        let bytes = (MAGIC.len() + 2 * length + CHECKSUM) as u64;
        if file.metadata().ok()?.len() != bytes {
            return None;
        }
        let mut magic = [0; MAGIC.len()];
        file.read_exact(&mut magic).ok()?;
        let mut sum = Sha256::new();
        let mut halves = Vec::with_capacity(length);
        let mut chunk = vec![0; CHUNK];
        while halves.len() < length {
            let chunk = &mut chunk[..CHUNK.min(2 * (length - halves.len()))];
            file.read_exact(chunk).ok()?;
            sum.update(&*chunk);
            halves.extend(chunk.chunks_exact(2).map(|two| Half(u16::from_le_bytes([two[0], two[1]]))));
        }
        let mut expected = [0; CHECKSUM];
        file.read_exact(&mut expected).ok()?;
        (magic == *MAGIC && sum.finalize()[..] == expected).then_some(halves)
    }

    /// Keeps the features of a set, for the owner of the directory only.
    pub(super) fn write(&self, features: Features, set: &Dataset, halves: &[Half]) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&self.directory)?;
        // A temporary file is readable by its owner only, and nobody finds it half written.
        let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
        file.write_all(MAGIC)?;
        let mut sum = Sha256::new();
        let mut chunk = Vec::with_capacity(CHUNK);
        for halves in halves.chunks(CHUNK / 2) {
            chunk.clear();
            chunk.extend(halves.iter().flat_map(|half| half.0.to_le_bytes()));
            sum.update(&chunk);
            file.write_all(&chunk)?;
        }
        file.write_all(&sum.finalize())?;
        file.persist(self.path(features, set)).map_err(|error| error.error)?;
        Ok(())
    }
}
