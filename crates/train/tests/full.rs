//! A disk that is full after any number of bytes, and then has room again: whatever was written is whole or
//! refused by nobody, every round that happened is charged, and the run comes to its end.

#[path = "ledger/machine.rs"]
mod machine;
#[path = "ledger/run.rs"]
mod run;

use std::io;
use std::path::Path;

use dpsgd_train::checkpoint::{Checkpoint, CheckpointError};
use dpsgd_train::ledger::{Blocks, Header, History, Ledger, LedgerError};
use machine::Machine;
use run::plan;

const ROUNDS: u64 = 10;

fn header(shuffled: bool) -> Header {
    Header::new(b"model = \"lenet5\"\n", plan(shuffled, ROUNDS), true)
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::StorageFull
}

/// A process from the beginning or from where the ledger is, until the end or until the disk is full. What
/// happened is noted in `ran`, outside of the disk.
fn process(machine: &Machine, shuffled: bool, ran: &mut Vec<u64>) -> Result<(), String> {
    let path = Path::new("ledger");
    let told = |error: LedgerError| match &error {
        LedgerError::Io { source, .. } if is_full(source) => error.to_string(),
        _ => panic!("{error}"),
    };
    let opened = match History::read_in(machine, path, header(shuffled).identity()) {
        Ok(_) => Ledger::open_in(machine.clone(), path, header(shuffled)),
        Err(_) => Ledger::create_in(machine.clone(), path, header(shuffled)),
    };
    // The last record was written and its head was not: the run is at its end all the same.
    if let Err(LedgerError::Finished { rounds }) = opened {
        assert_eq!(rounds, ROUNDS);
        return Ok(());
    }
    let mut ledger = opened.map_err(told)?.with_blocks(Blocks { first: 3, most: 3 });
    for round in ledger.spent()..ROUNDS {
        if let Err(error) = ledger.charge(round) {
            // Nothing can be charged until somebody has looked at the disk.
            assert!(matches!(ledger.charge(round), Err(LedgerError::Broken)));
            return Err(told(error));
        }
        ran.push(round);
        let checkpoint = Checkpoint { round: round + 1, ledger: ledger.position(), ..Checkpoint::default() };
        checkpoint.write_in(machine, Path::new("checkpoint")).map_err(|error| match &error {
            CheckpointError::Io { source, .. } if is_full(source) => error.to_string(),
            _ => panic!("{error}"),
        })?;
    }
    ledger.finish().map_err(told)
}

#[test]
fn a_disk_may_be_full_after_any_byte() {
    for shuffled in [false, true] {
        let (mut filled, mut lost) = (0, 0);
        for room in 0.. {
            let machine = Machine::default();
            let mut ran = Vec::new();
            machine.has_room_for(Some(room));
            let done = process(&machine, shuffled, &mut ran).is_ok();
            // Still no room: nothing becomes better or worse.
            if !done && !ran.is_empty() {
                let before = ran.len();
                let again = process(&machine, shuffled, &mut ran);
                assert!(again.is_err() || ran.last() == Some(&(ROUNDS - 1)), "{room}");
                assert_eq!(ran.len(), before);
            }
            if let Some(&last) = ran.last() {
                let history =
                    History::read_in(&machine, Path::new("ledger"), header(shuffled).identity()).unwrap();
                assert!(history.spent() > last, "{room}: undercounted");
                let checkpoint = Checkpoint::read_in(&machine, Path::new("checkpoint"));
                // The first checkpoint may be the one that did not fit.
                assert!(checkpoint.map_or(ran.len() == 1, |found| found.round <= last + 1), "{room}");
            }
            if done {
                break;
            }
            filled += 1;
            // A run that could not begin has charged nothing; its directory is removed.
            let machine = if ran.is_empty()
                && History::read_in(&machine, Path::new("ledger"), header(shuffled).identity()).is_err()
            {
                Machine::default()
            } else {
                machine
            };
            machine.has_room_for(None);
            process(&machine, shuffled, &mut ran).unwrap();
            assert!(ran.is_sorted_by(|a, b| a < b), "{room}: a round happened twice");
            lost += ROUNDS - ran.len() as u64;
            let history =
                History::read_in(&machine, Path::new("ledger"), header(shuffled).identity()).unwrap();
            assert!(history.finished() && history.spent() == ROUNDS);
        }
        assert!(filled > 1000 && lost > 100, "{filled} {lost}");
    }
}
