//! A directory of its own for every test.

use std::fs;
use std::path::PathBuf;

pub struct Folder(pub PathBuf);

impl Folder {
    /// An empty one; what an earlier run of the test left is removed.
    pub fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a writable directory");
        Self(path)
    }

    /// What is in it, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("a directory");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}
