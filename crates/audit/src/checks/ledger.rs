//! The ledger: never fewer rounds on record than have happened.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use dpsgd_privacy::mechanism::Mechanism;
use dpsgd_privacy::{Adversary, adversary};
use dpsgd_train::ledger::storage::{Storage, StoredFile};
use dpsgd_train::ledger::{Header, History, Ledger};
use dpsgd_train::{PlanConfig, Randomness, Trainer};

use super::Check;
use crate::AuditError;
use crate::probe::Probe;
use crate::shortened::Shortened;

/// The most rounds of the run.
const ROUNDS: u64 = 200;

/// After every round what is on the disk charges at least the rounds done, and what it says of them is what
/// the accountant says.
///
/// A run with the ledger of production on a disk in memory, read again after every round as a process would
/// that found it after a crash.
pub fn ledger(config: &PlanConfig, short: &Shortened, delta: f64) -> Result<Check, AuditError> {
    let what = "the ledger charges every round before it happens, and its statement is the accountant's";
    let mut check = Check::new("ledger", what, 0.0);
    let Some(mechanism) = short.mechanism.first_rounds(short.rounds().min(ROUNDS))? else {
        return Ok(check.not_applicable("there is no round"));
    };
    let config = PlanConfig { mechanism: mechanism.clone(), threads: 1, ..config.clone() };
    let probe = Probe::new(2, short.samples, |_: u32, _: &[f32], _: &mut [f32]| {});
    let (disk, path) = (Memory::default(), Path::new("ledger"));
    let header = Header::new(b"audit", Arc::new(config.check()?), false);
    let ledger = Ledger::create_in(disk.clone(), path, header.clone())?;
    let mut trainer = Trainer::new(ledger, probe, vec![0.0; 2], Randomness::from_seed(1, 0))?;
    let mut spent = 0;
    while !trainer.finished() && !check.failed() {
        let done = match trainer.round() {
            Ok(round) => round.round + 1,
            Err(error) => {
                check.fail(error.to_string());
                break;
            }
        };
        match History::read_in(&disk, path, header.identity()) {
            Ok(history) => spent = history.spent(),
            Err(error) => check.fail(format!("after {done} rounds it cannot be read: {error}")),
        }
        if spent < done {
            check.fail(format!("{done} rounds have happened, {spent} are charged"));
        }
        // What a crash here would leave to be said, half way.
        if done == trainer.plan().rounds() / 2 {
            compare(&mut check, &mechanism, spent, done, delta)?;
        }
    }
    let rounds = trainer.plan().rounds();
    compare(&mut check, &mechanism, spent, rounds, delta)?;
    if spent != rounds {
        check.fail(format!("at the end {spent} of {rounds} rounds are charged"));
    }
    check.note(format!("{rounds} rounds, at least as many charged after each of them"));
    Ok(check)
}

/// ε of what is charged against ε of what was done.
fn compare(
    check: &mut Check,
    whole: &Mechanism,
    charged: u64,
    done: u64,
    delta: f64,
) -> Result<(), AuditError> {
    let epsilon = |mechanism: Option<Mechanism>| -> Result<f64, AuditError> {
        Ok(match mechanism {
            Some(mechanism) => adversary::curve(&mechanism, Adversary::A1)?.epsilon(delta)?.upper,
            None => 0.0,
        })
    };
    let (says, is) = (epsilon(whole.spent(charged)?)?, epsilon(whole.first_rounds(done)?)?);
    if says < is {
        check.fail(format!("after {done} rounds the ledger says ε = {says:.4}, the accountant {is:.4}"));
    }
    Ok(())
}

/// Files in memory.
#[derive(Clone, Debug, Default)]
struct Memory(Rc<RefCell<BTreeMap<PathBuf, Vec<u8>>>>);

#[derive(Debug)]
struct MemoryFile(Memory, PathBuf);

impl Memory {
    fn open(&self, path: &Path, content: Option<Vec<u8>>) -> MemoryFile {
        if let Some(content) = content {
            self.0.borrow_mut().insert(path.to_owned(), content);
        }
        MemoryFile(self.clone(), path.to_owned())
    }
}

fn missing() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

impl Storage for Memory {
    type File = MemoryFile;

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.borrow().get(path).cloned().ok_or_else(missing)
    }

    fn create_new(&self, path: &Path) -> io::Result<MemoryFile> {
        if self.0.borrow().contains_key(path) {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        self.create(path)
    }

    fn create(&self, path: &Path) -> io::Result<MemoryFile> {
        Ok(self.open(path, Some(Vec::new())))
    }

    fn append(&self, path: &Path) -> io::Result<MemoryFile> {
        self.read(path).map(|_| self.open(path, None))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let content = self.0.borrow_mut().remove(from).ok_or_else(missing)?;
        self.open(to, Some(content));
        Ok(())
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

impl StoredFile for MemoryFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.0.borrow_mut().entry(self.1.clone()).or_default().extend_from_slice(bytes);
        Ok(())
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.0.0.borrow_mut().entry(self.1.clone()).or_default().truncate(length as usize);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}
