//! Updates on the disk until the log has them, so that a crash loses no update that was written.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ENDING: &str = "update";

/// A folder with a file for each update that is not acknowledged.
///
/// # Guarantee
///
/// What it holds has been noised and charged, and is sent again as the same bytes. A round that was charged
/// and is not here when a client resumes is lost: it is never computed again.
#[derive(Clone, Debug)]
pub struct Outbox {
    folder: PathBuf,
}

impl Outbox {
    /// In this folder, which is made if it does not exist.
    pub fn open(folder: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// Writes an update; it is on the disk when this returns.
    pub fn put(&self, round: u64, bytes: &[u8]) -> io::Result<()> {
        let fresh = self.folder.join(format!("{round:016}.writing"));
        let mut file = File::create(&fresh)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&fresh, self.path(round))?;
        File::open(&self.folder)?.sync_all()
    }

    /// Forgets an update that was acknowledged.
    pub fn remove(&self, round: u64) -> io::Result<()> {
        match std::fs::remove_file(self.path(round)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Every update, by round.
    pub fn updates(&self) -> io::Result<Vec<(u64, Arc<[u8]>)>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let round = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
            match round {
                Some(round) if path.extension().is_some_and(|ending| ending == ENDING) => {
                    found.push((round, std::fs::read(&path)?.into()));
                }
                _ => {}
            }
        }
        found.sort_by_key(|(round, _)| *round);
        Ok(found)
    }

    fn path(&self, round: u64) -> PathBuf {
        self.folder.join(format!("{round:016}.{ENDING}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_was_not_acknowledged() {
        let folder = tempfile::tempdir().unwrap();
        let outbox = Outbox::open(&folder.path().join("outbox")).unwrap();
        for round in [3, 1, 20] {
            outbox.put(round, &[round as u8; 5]).unwrap();
        }
        outbox.remove(1).unwrap();
        outbox.remove(1).unwrap();
        // A write that a crash cut short is not an update.
        std::fs::write(folder.path().join("outbox/0000000000000007.writing"), b"half").unwrap();
        let found = Outbox::open(&folder.path().join("outbox")).unwrap().updates().unwrap();
        assert_eq!(found, [(3, Arc::from([3u8; 5])), (20, Arc::from([20u8; 5]))]);
    }
}
