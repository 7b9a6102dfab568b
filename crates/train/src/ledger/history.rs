//! Reading a ledger and believing it, or not.

use std::io;
use std::path::Path;

use dpsgd_privacy::mechanism::{Mechanism, MechanismError};

use super::record::{self, Digest, LedgerPosition, Record};
use super::storage::{Disk, Storage, beside, failed};
use super::{HEAD_ENDING, Identity, LedgerError};

const NO_HEADER: &str = "it has no complete header; nothing was trained, start anew";

/// What a ledger says, every record of it verified.
#[derive(Clone, Debug)]
pub struct History {
    mechanism: Mechanism,
    digests: Vec<Digest>,
    charged: u64,
    /// The first round of the last block, as long as the process that charged it may end it.
    block: Option<u64>,
    /// Whether the last process stopped: nothing is charged before the next has begun.
    stopped: bool,
    resumes: u64,
    measured: bool,
    finished: bool,
    /// The bytes of the verified records; what follows them was never acknowledged.
    pub(crate) verified: u64,
    /// Whether a record was begun after the last one and not completed.
    pub(crate) torn: bool,
    /// Whether the last record is not yet in the head.
    pub(crate) head_lags: bool,
}

impl History {
    /// Reads the ledger at `path` and the head beside it, changing nothing.
    ///
    /// # Guarantee
    /// What is returned counts every round that was ever acknowledged to a caller of
    /// [`Ledger::charge`](super::Ledger::charge), provided that not both files were replaced by older
    /// copies that fit each other: that the two files alone cannot show, see [`History::require`].
    /// Any single damaged byte and any shortening of one of the two files is an error, unless it
    /// is in a record that was never acknowledged.
    ///
    /// An incomplete last line is the one thing that is forgiven, and its rounds are **not** counted.
    /// They did not happen: a round happens only after `charge` has returned, `charge` returns only
    /// after the sync of its record, and after that sync the line is complete on the disk. Nor could
    /// they be counted: half of a number is another number. If instead an acknowledged record had been cut
    /// afterwards, the head (written between that sync and the return) would know of it, and the
    /// ledger is refused. So an incomplete line is forgiven only if the head is at the record before it.
    pub fn read(path: &Path, identity: &Identity) -> Result<Self, LedgerError> {
        Self::read_in(&Disk, path, identity)
    }

    /// [`History::read`] from any storage.
    pub fn read_in<S: Storage>(storage: &S, path: &Path, identity: &Identity) -> Result<Self, LedgerError> {
        let read = |path: &Path| {
            storage.read(path).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => LedgerError::Missing(path.to_owned()),
                _ => failed(path, "read")(error),
            })
        };
        // The head first: a reader during the run then sees it lag at most, never lead.
        let head_path = beside(path, HEAD_ENDING);
        let head = read(&head_path);
        let mut history = Self::replay(path, &read(path)?, identity)?;
        let Some(head) = record::parse_head(&head?) else {
            return Err(LedgerError::Damaged {
                path: head_path,
                line: 1,
                why: "it is not a ledger head".into(),
            });
        };
        history.require(path, &head, "ledger.head")?;
        let behind = history.position().sequence - head.sequence;
        // Each record is in the head before the next is begun.
        if behind + u64::from(history.torn) > 1 {
            let why = format!("it stops at record {}, the ledger goes on beyond the next", head.sequence);
            return Err(LedgerError::Damaged { path: head_path, line: 1, why });
        }
        history.head_lags = behind == 1;
        Ok(history)
    }

    /// Whether the ledger at `path` was begun with the configuration `config`. That can be asked before
    /// anybody knows the mechanism, without which the records after the first cannot be followed.
    pub(crate) fn begun_with(path: &Path, config: &[u8]) -> Result<bool, LedgerError> {
        let bytes = Disk.read(path).map_err(failed(path, "read"))?;
        let damaged = |why: &str| LedgerError::Damaged { path: path.into(), line: 1, why: why.into() };
        let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else { return Err(damaged(NO_HEADER)) };
        let (text, _) = record::open(&bytes[..end], 0, &Digest::default()).map_err(damaged)?;
        let given = format!("config={}", Digest::of(&[config]));
        Ok(text.split(' ').any(|field| field == given))
    }

    /// Follows the records from the first to the last.
    fn replay(path: &Path, bytes: &[u8], identity: &Identity) -> Result<Self, LedgerError> {
        let mut history = Self {
            mechanism: identity.mechanism().clone(),
            digests: Vec::new(),
            charged: 0,
            block: None,
            stopped: false,
            resumes: 0,
            measured: false,
            finished: false,
            verified: 0,
            torn: false,
            head_lags: false,
        };
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            let number = history.digests.len();
            let damaged =
                |why: &str| LedgerError::Damaged { path: path.into(), line: number + 1, why: why.into() };
            let Some(content) = line.strip_suffix(b"\n") else {
                history.torn = true;
                break;
            };
            let previous = history.digests.last().copied().unwrap_or_default();
            let (text, digest) = record::open(content, number as u64, &previous).map_err(damaged)?;
            if number == 0 {
                compare(path, text, &identity.text())?;
            } else {
                let record = Record::parse(text).ok_or_else(|| damaged("no record of this version"))?;
                history.apply(record).map_err(damaged)?;
            }
            history.digests.push(digest);
            history.verified += line.len() as u64;
        }
        if history.digests.is_empty() {
            return Err(LedgerError::Damaged { path: path.into(), line: 1, why: NO_HEADER.into() });
        }
        Ok(history)
    }

    fn apply(&mut self, record: Record) -> Result<(), &'static str> {
        if self.finished {
            return Err("it follows the end of the run");
        }
        match record {
            Record::Charge { .. } | Record::Stop { .. } | Record::Measure { .. } | Record::Finish { .. }
                if self.stopped =>
            {
                return Err("it follows a stop, after which a run is resumed first");
            }
            Record::Charge { from, to } => {
                // Only whole epochs are charged, and `resume_at` is at most T.
                if from != self.charged || to <= from || to != self.mechanism.resume_at(to) {
                    return Err("it charges rounds that are not the next ones");
                }
                self.block = Some(from);
                self.charged = to;
            }
            Record::Stop { at } => {
                // It gives back the end of the last block, and never the first round of it.
                let begun = self.block.is_some_and(|from| from < at);
                if !begun || at >= self.charged || at != self.mechanism.resume_at(at) {
                    return Err("it gives back rounds that are not the last of a block");
                }
                self.charged = at;
                self.stopped = true;
            }
            Record::Resume { at } | Record::Measure { at } | Record::Finish { at } if at != self.charged => {
                return Err("it counts other rounds than the records before it");
            }
            Record::Resume { .. } => {
                self.resumes += 1;
                (self.block, self.stopped) = (None, false);
            }
            Record::Measure { .. } if self.measured => return Err("it measures what was measured before"),
            Record::Measure { .. } => self.measured = true,
            Record::Finish { .. } => self.finished = true,
        }
        Ok(())
    }

    /// The rounds charged in all: the rounds 0 to `spent()`, exclusive, may have left.
    pub fn spent(&self) -> u64 {
        self.charged
    }

    /// The run that what may have left belongs to, for the accountant; nothing if no round was charged. See
    /// [`Mechanism::spent`].
    pub fn spent_mechanism(&self) -> Result<Option<Mechanism>, MechanismError> {
        self.mechanism.spent(self.charged)
    }

    /// How often the run was resumed.
    pub fn resumes(&self) -> u64 {
        self.resumes
    }

    /// Whether a private test set was measured, or may have been.
    pub fn measured(&self) -> bool {
        self.measured
    }

    /// Whether the run was closed.
    pub fn finished(&self) -> bool {
        self.finished
    }

    /// The last record.
    pub fn position(&self) -> LedgerPosition {
        // `replay` has refused a ledger without any record.
        let digest = self.digests.last().copied().unwrap_or_default();
        LedgerPosition { sequence: self.digests.len() as u64 - 1, digest }
    }

    /// Refuses the ledger unless it has the record that `witness` remembers: a ledger that was cut at
    /// the end of a record is whole in itself, only others know what it has lost.
    pub fn require(&self, path: &Path, known: &LedgerPosition, witness: &str) -> Result<(), LedgerError> {
        let shortened = |what: &str| {
            let (last, path) = (self.position().sequence, path.to_owned());
            let witness = format!("{witness} remembers {what} {}", known.sequence);
            Err(LedgerError::Shortened { path, last, witness })
        };
        match usize::try_from(known.sequence).ok().and_then(|sequence| self.digests.get(sequence)) {
            None => shortened("record"),
            Some(digest) if *digest != known.digest => shortened("another record"),
            Some(_) => Ok(()),
        }
    }
}

/// Names the first field in which two headers differ.
fn compare(path: &Path, found: &str, given: &str) -> Result<(), LedgerError> {
    if found == given {
        return Ok(());
    }
    let mut fields = found.split(' ').zip(given.split(' '));
    let (found, given) = fields.find(|(found, given)| found != given).unwrap_or((found, given));
    Err(LedgerError::OtherRun { path: path.into(), found: found.into(), given: given.into() })
}
