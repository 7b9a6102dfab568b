//! Ledgers: raw, and records with numbers and digests that fit, after the first record of a real run.
#![no_main]

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use dpsgd::privacy::mechanism::{Length, Mechanism, NoiseScale, PhaseConfig, RunConfig, Sampling};
use dpsgd::train::PlanConfig;
use dpsgd::train::ledger::storage::{Storage, StoredFile};
use dpsgd::train::ledger::{Digest, Header, History, Identity, Ledger};
use libfuzzer_sys::fuzz_target;

/// Files in memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<BTreeMap<PathBuf, Vec<u8>>>>);

struct Open(Memory, PathBuf);

impl Memory {
    fn with(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        change(self.0.lock().expect("one thread").entry(path.to_owned()).or_default());
        Ok(())
    }
}

impl StoredFile for Open {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.with(&self.1, |file| file.extend(bytes))
    }
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.0.with(&self.1, |file| file.truncate(length as usize))
    }
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Storage for Memory {
    type File = Open;
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let files = self.0.lock().expect("one thread");
        files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
    fn create_new(&self, path: &Path) -> io::Result<Open> {
        self.create(path)
    }
    fn create(&self, path: &Path) -> io::Result<Open> {
        self.with(path, Vec::clear)?;
        self.append(path)
    }
    fn append(&self, path: &Path) -> io::Result<Open> {
        Ok(Open(self.clone(), path.to_owned()))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = self.0.lock().expect("one thread");
        let bytes = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), bytes);
        Ok(())
    }
    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

fn mechanism(shuffled: bool) -> Mechanism {
    let (samples, groups, group_size) = (27, 3, 2);
    let sampling = match shuffled {
        true => Sampling::Shuffle { samples, groups, group_size },
        false => Sampling::Subsample { samples, groups, group_size },
    };
    let (length, noise) = (Length::Rounds(22), NoiseScale::Sigma(1.5));
    RunConfig::single(PhaseConfig { sampling, length, noise, filtered: false }).check().expect("a mechanism")
}

fn believed(mechanism: &Mechanism, ledger: Vec<u8>, head: Vec<u8>) {
    let files = Memory::default();
    files.0.lock().expect("one thread").extend([("ledger".into(), ledger), ("ledger.head".into(), head)]);
    let identity = Identity::new(b"", mechanism.clone(), true);
    if let Ok(history) = History::read_in(&files, Path::new("ledger"), &identity) {
        assert!(history.spent() <= 22 && history.spent() == mechanism.resume_at(history.spent()));
    }
}

fn line(number: usize, text: &str, previous: &Digest) -> (String, Digest) {
    let body = format!("{number} {text}");
    let digest = Digest::of(&[&previous.0, body.as_bytes()]);
    (format!("{body} {digest}\n"), digest)
}

fuzz_target!(|input: (bool, &[u8])| {
    let (shuffled, bytes) = input;
    let mechanism = mechanism(shuffled);
    // Raw, cut into the two files at the first zero.
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    believed(&mechanism, bytes[..end].to_vec(), bytes[end..].iter().skip(1).copied().collect());
    let Ok(records) = std::str::from_utf8(bytes) else { return };
    let files = Memory::default();
    let plan = Arc::new(PlanConfig::new(mechanism.clone(), 1.0, 0.1).check().expect("a plan"));
    Ledger::create_in(files.clone(), Path::new("ledger"), Header::new(b"", plan, true)).expect("a ledger");
    let first = String::from_utf8(files.read(Path::new("ledger")).expect("a file")).expect("a text");
    let first =
        first.trim_end().split_once(' ').and_then(|(_, rest)| rest.rsplit_once(' ')).expect("a record");
    let (mut ledger, mut last, mut count) = (String::new(), Digest::default(), 0);
    for (number, text) in std::iter::once(first.0).chain(records.lines()).enumerate() {
        let (text, digest) = line(number, text, &last);
        ledger.push_str(&text);
        (last, count) = (digest, number);
    }
    let head = line(count, &format!("dpsgd-ledger-head=1 {last}"), &Digest::default()).0;
    believed(&mechanism, ledger.into_bytes(), head.into_bytes());
});
