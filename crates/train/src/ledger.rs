//! The ledger: what a run has spent, written down before it is spent.
//!
//! A text file of records that only grows, each with the SHA-256 digest of its content and of the record
//! before it:
//!
//! ```text
//! 0 run dpsgd-ledger=1 randomness=private rounds=870 config=5be8… mechanism=90c1… 4fd2…
//! 1 charge 0 58 d6a0…
//! 2 charge 58 116 77be…
//! 3 resume 116 0c9e…
//! ```
//!
//! and beside it `ledger.head`, the number and digest of the last record, replaced as a whole after
//! every record and before any of its rounds. A ledger cut at the end of a record looks whole; the
//! head, the checkpoint and the metrics know better. All three notice accidents and careless hands, not
//! a forger: who can write the directory can write all of it, and an old copy of the whole directory
//! looks as it did then.
//!
//! Records charge blocks of rounds ahead ([`Blocks`]), so that syncing costs nothing. After a crash the
//! whole block counts as spent and the run resumes after it: the run stays at its T rounds and has the
//! guarantee it would have had without the crash. A process that is asked to stop ends its block itself
//! ([`Ledger::stop`]), so that exactly what was run counts.
//!
//! A [`Witness`] outside of the directory is told of every record and so knows an old copy when it sees one.

mod blocks;
mod error;
mod header;
mod history;
mod record;
pub mod storage;
mod witness;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dpsgd_privacy::mechanism::{Mechanism, MechanismError, Phase};

pub use blocks::Blocks;
pub use error::LedgerError;
pub use header::{Header, Identity};
pub use history::History;
pub use record::{Digest, LedgerPosition, NoDigest};
pub use witness::{Standing, Witness};

use crate::charge::Charge;
use crate::fault::{self, Fault};
use crate::plan::Plan;
use record::Record;
use storage::{Disk, Storage, StoredFile, beside, directory_of, failed, replace};

/// What is added to the ledger's name for the file with its last record.
pub(crate) const HEAD_ENDING: &str = ".head";

/// A ledger that is being written. See the module documentation.
#[derive(Debug)]
pub struct Ledger<S: Storage = Disk> {
    storage: S,
    path: PathBuf,
    file: S::File,
    header: Header,
    position: LedgerPosition,
    state: State,
    /// The rounds before this one are charged.
    charged: u64,
    /// The first round that has neither happened nor been lost.
    next: u64,
    resumes: u64,
    measured: bool,
    blocks: Blocks,
    length: u64,
    /// When the last charge was done, and how long it took.
    paid: Option<(Instant, Duration)>,
    witness: Option<Box<dyn Witness>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Finished,
    /// The process was asked to stop and gave back what it had not used.
    Stopped,
    /// A write failed: what the disk holds is unknown, and a second sync may report a success that
    /// the first one denied. Only a new reading can tell.
    Broken,
}

impl Ledger {
    /// Begins the ledger of a new run, which owns the plan; an existing file is never touched.
    pub fn create(path: &Path, header: Header) -> Result<Self, LedgerError> {
        Self::create_in(Disk, path, header)
    }

    /// Opens the ledger of an interrupted run to resume it; [`Ledger::spent`] is its next round.
    ///
    /// # Guarantee
    /// As [`History::read`]: everything that may have left is counted, or there is an error and nothing
    /// was changed. Afterwards no round that was charged before can be charged or happen again. The
    /// caller sees to it that no other process writes the ledger (the lock of
    /// [`RunDirectory`](crate::directory::RunDirectory)).
    pub fn open(path: &Path, header: Header) -> Result<Self, LedgerError> {
        Self::open_in(Disk, path, header)
    }
}

impl<S: Storage> Ledger<S> {
    /// [`Ledger::create`] on any storage.
    pub fn create_in(storage: S, path: &Path, header: Header) -> Result<Self, LedgerError> {
        let file = storage.create_new(path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => LedgerError::Exists(path.to_owned()),
            _ => failed(path, "create")(error),
        })?;
        let mut ledger = Self::new(storage, path, file, header);
        let (line, position) = record::line(0, &ledger.header.identity().text(), &Digest::default());
        ledger.append(&line, position)?;
        Ok(ledger)
    }

    /// [`Ledger::open`] on any storage.
    pub fn open_in(storage: S, path: &Path, header: Header) -> Result<Self, LedgerError> {
        let history = History::read_in(&storage, path, header.identity())?;
        if history.finished() {
            return Err(LedgerError::Finished { rounds: history.spent() });
        }
        let file = storage.append(path).map_err(failed(path, "open"))?;
        let mut ledger = Self::new(storage, path, file, header);
        if history.torn {
            ledger.file.cut(history.verified).map_err(failed(path, "cut an incomplete line off"))?;
        }
        // What was read may be in memory only, if a process died and the machine did not: a record must
        // be on the disk before the head says so, and the head before the next record.
        ledger.file.sync().map_err(failed(path, "sync"))?;
        let directory = directory_of(path);
        ledger.storage.sync_directory(directory).map_err(failed(directory, "sync"))?;
        ledger.position = history.position();
        if history.head_lags {
            ledger.write_head(&ledger.position)?;
        }
        ledger.charged = history.spent();
        ledger.next = ledger.charged;
        ledger.resumes = history.resumes() + 1;
        ledger.measured = history.measured();
        ledger.record(Record::Resume { at: ledger.charged }, ledger.charged)?;
        Ok(ledger)
    }

    fn new(storage: S, path: &Path, file: S::File, header: Header) -> Self {
        let blocks = Blocks::of(header.plan().mechanism());
        Self {
            storage,
            path: path.to_owned(),
            file,
            header,
            position: LedgerPosition::default(),
            state: State::Open,
            charged: 0,
            next: 0,
            resumes: 0,
            measured: false,
            blocks,
            length: blocks.first,
            paid: None,
            witness: None,
        }
    }

    /// Tells `witness` of the present state and of every record from now on, before its rounds may happen.
    pub fn witnessed_by(&mut self, witness: Box<dyn Witness>) -> Result<(), LedgerError> {
        self.witness = Some(witness);
        self.tell_witness()
    }

    fn tell_witness(&mut self) -> Result<(), LedgerError> {
        let standing = Standing {
            position: self.position,
            charged: self.charged,
            measured: self.measured,
            finished: self.state == State::Finished,
        };
        match &mut self.witness {
            Some(witness) => witness.remember(&standing).map_err(failed(&witness.place(), "write")),
            None => Ok(()),
        }
    }

    /// Charges in other blocks than [`Blocks::of`] the mechanism.
    pub fn with_blocks(self, blocks: Blocks) -> Self {
        Self { blocks, length: blocks.first, ..self }
    }

    /// The rounds charged in all: the rounds 0 to `spent()`, exclusive, may have left. A run that was
    /// interrupted resumes with round `spent()`, with shuffling and allocation always the first of an epoch.
    pub fn spent(&self) -> u64 {
        self.charged
    }

    /// The plan whose rounds are charged.
    pub fn plan(&self) -> &Arc<Plan> {
        self.header.plan()
    }

    /// The run that what may have left belongs to, for the accountant; nothing if no round was charged. See
    /// [`Mechanism::spent`].
    pub fn spent_mechanism(&self) -> Result<Option<Mechanism>, MechanismError> {
        self.plan().mechanism().spent(self.charged)
    }

    /// How often the run was resumed, this process included: with a seed of the user's, what keeps
    /// the draws of this process apart from those of the processes before it.
    pub fn resumes(&self) -> u64 {
        self.resumes
    }

    /// The last record, for the checkpoint to remember.
    pub fn position(&self) -> LedgerPosition {
        self.position
    }

    /// Must return without error before the noised update of `round` (counted from 0 over all phases) is
    /// applied or leaves.
    ///
    /// # Guarantee
    /// After `Ok`, a record that charges `round` and the head that acknowledges it survive a loss of
    /// power, and no other call, in this process or after any number of crashes, returns `Ok` for the same
    /// round again. After an error the round must not happen; if the disk failed, no round can until
    /// the ledger is opened anew.
    pub fn charge(&mut self, round: u64) -> Result<(), LedgerError> {
        self.usable()?;
        let rounds = self.plan().rounds();
        if round >= rounds {
            return Err(LedgerError::Beyond { round, rounds });
        }
        if round < self.next {
            return Err(LedgerError::Repeated { round, next: self.next });
        }
        if round >= self.charged {
            let begun = Instant::now();
            self.length = match self.paid {
                Some((end, sync))
                    if !self.plan().mechanism().phases().iter().any(Phase::has_private_size) =>
                {
                    self.blocks.next(self.length, begun - end, sync)
                }
                Some(_) => self.blocks.doubled(self.length),
                None => self.length.max(1),
            };
            let to = self.plan().mechanism().resume_at(round.saturating_add(self.length));
            let short = u64::from(fault::injected(Fault::LedgerShort));
            self.record(Record::Charge { from: self.charged.saturating_sub(short), to: to - short }, to)?;
            self.paid = Some((Instant::now(), begun.elapsed()));
        }
        self.next = round + 1;
        Ok(())
    }

    /// Counts the rounds before `rounds` as spent: they happened in another copy of the run, of which this
    /// ledger knows nothing.
    ///
    /// # Guarantee
    /// As [`Ledger::charge`]; none of these rounds can be charged or happen again here.
    pub fn charge_elsewhere(&mut self, rounds: u64) -> Result<(), LedgerError> {
        self.usable()?;
        let to = self.plan().mechanism().resume_at(rounds.min(self.plan().rounds()));
        if to > self.charged {
            self.record(Record::Charge { from: self.charged, to }, to)?;
            self.next = to;
        }
        Ok(())
    }

    /// Whether the private test set may be measured now. It is asked before the noise is drawn.
    ///
    /// # Guarantee
    /// `true` at most once in the life of a run, whatever crashes and however often it is resumed; and the witness
    /// knows before it is returned, so that no copy of the run measures again. A measurement that is lost after
    /// that, because its file could not be written, stays spent.
    pub fn measure(&mut self) -> Result<bool, LedgerError> {
        self.usable()?;
        if self.measured {
            return Ok(false);
        }
        self.measured = true;
        self.record(Record::Measure { at: self.charged }, self.charged)?;
        Ok(true)
    }

    /// The private test set was measured in another copy of the run, of which this ledger knows nothing.
    ///
    /// # Guarantee
    /// As [`Ledger::measure`]; it is not measured here.
    pub fn measured_elsewhere(&mut self) -> Result<(), LedgerError> {
        self.measure().map(drop)
    }

    /// Ends the block that was charged ahead, because this process will run no further round; the run can be
    /// resumed.
    ///
    /// # Guarantee
    /// Only rounds are given back for which [`Ledger::charge`] has never returned, and this process can charge
    /// none from now on, even if the record fails. Where an epoch shares one draw, the whole epoch stays
    /// charged once it was begun. A crash before the record is complete leaves the whole block charged.
    pub fn stop(&mut self) -> Result<(), LedgerError> {
        self.usable()?;
        self.state = State::Stopped;
        let at = self.plan().mechanism().resume_at(self.next);
        if at < self.charged {
            self.record(Record::Stop { at }, at)?;
            self.state = State::Stopped;
        }
        Ok(())
    }

    /// Closes the run: nothing can be charged any more. Call it last, when everything else of the run is
    /// on the disk; until then the run can be resumed to write the rest.
    pub fn finish(&mut self) -> Result<(), LedgerError> {
        self.usable()?;
        self.record(Record::Finish { at: self.charged }, self.charged)
    }

    fn usable(&self) -> Result<(), LedgerError> {
        match self.state {
            State::Open => Ok(()),
            State::Finished => Err(LedgerError::Finished { rounds: self.charged }),
            State::Stopped => Err(LedgerError::Stopped { rounds: self.charged }),
            State::Broken => Err(LedgerError::Broken),
        }
    }

    /// Writes a record after which `charged` rounds are charged. The witness is told last: it may lag, as the
    /// head may, and none of the rounds has happened then.
    fn record(&mut self, record: Record, charged: u64) -> Result<(), LedgerError> {
        let (line, position) =
            record::line(self.position.sequence + 1, &record.to_string(), &self.position.digest);
        self.append(&line, position)?;
        self.charged = charged;
        if let Record::Finish { .. } = record {
            self.state = State::Finished;
        }
        self.tell_witness().inspect_err(|_| self.state = State::Broken)
    }

    /// First the record, synced, then the head: so the head lags by one record at most and never leads.
    /// Replacing the head syncs the directory, and with it the name of a new ledger.
    fn append(&mut self, line: &str, position: LedgerPosition) -> Result<(), LedgerError> {
        self.state = State::Broken;
        self.file.write(line.as_bytes()).map_err(failed(&self.path, "append"))?;
        self.file.sync().map_err(failed(&self.path, "sync"))?;
        self.write_head(&position)?;
        self.position = position;
        self.state = State::Open;
        Ok(())
    }

    fn write_head(&self, position: &LedgerPosition) -> Result<(), LedgerError> {
        let path = beside(&self.path, HEAD_ENDING);
        let text = record::head(position);
        replace(&self.storage, &path, text.as_bytes()).map_err(failed(&path, "replace"))
    }
}

impl<S: Storage> Charge for Ledger<S> {
    type Error = LedgerError;

    fn plan(&self) -> &Arc<Plan> {
        Ledger::plan(self)
    }

    fn spent(&self) -> u64 {
        Ledger::spent(self)
    }

    fn private(&self) -> Option<bool> {
        Some(self.header.identity().private())
    }

    fn charge(&mut self, round: u64) -> Result<(), LedgerError> {
        Ledger::charge(self, round)
    }
}
