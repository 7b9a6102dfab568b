//! The ledger under damage and loss of power: whatever happens to the files, either they are refused or
//! every round that really happened counts as spent.
//!
//! The oracle is the list of rounds that a run noted, outside of the files, after `charge` had returned.

#[path = "ledger/machine.rs"]
mod machine;

use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use dpsgd_privacy::mechanism::{Length, Mechanism, NoiseScale, PhaseConfig, RunConfig, Sampling};
use dpsgd_train::checkpoint::{Checkpoint, CheckpointError};
use dpsgd_train::ledger::storage::Storage;
use dpsgd_train::ledger::{
    Blocks, Header, History, Identity, Ledger, LedgerError, LedgerPosition, Standing, Witness,
};
use dpsgd_train::{Plan, PlanConfig};
use machine::{End, Machine, World};

const LEDGER: &str = "ledger";
const HEAD: &str = "ledger.head";
const CHECKPOINT: &str = "checkpoint";
const CONFIG: &[u8] = b"model = \"lenet5\"\n";

fn mechanism(sampling: Sampling, rounds: u64) -> Mechanism {
    let (length, noise) = (Length::Rounds(rounds), NoiseScale::Sigma(1.5));
    RunConfig::single(PhaseConfig { sampling, length, noise, filtered: false }).check().unwrap()
}

fn subsample(rounds: u64) -> Mechanism {
    mechanism(Sampling::Subsample { samples: 50, groups: 3, group_size: 2 }, rounds)
}

/// Epochs of four rounds.
fn shuffle(rounds: u64) -> Mechanism {
    mechanism(Sampling::Shuffle { samples: 27, groups: 3, group_size: 2 }, rounds)
}

/// Epochs of four rounds, over data whose size is private.
fn allocate(rounds: u64) -> Mechanism {
    mechanism(Sampling::Allocate { rounds: 4 }, rounds)
}

fn header(mechanism: &Mechanism) -> Header {
    Header::new(CONFIG, plan(mechanism), true)
}

fn plan(mechanism: &Mechanism) -> Arc<Plan> {
    Arc::new(PlanConfig::new(mechanism.clone(), 1.0, 0.1).with_divisor(6.0).check().unwrap())
}

const BLOCKS: Blocks = Blocks { first: 3, most: 3 };

/// What a run did, noted outside of its files.
#[derive(Clone, Debug, Default)]
struct Oracle {
    begun: bool,
    ran: Vec<u64>,
    checkpoint: Option<u64>,
}

impl Oracle {
    /// The rounds that certainly are spent.
    fn least(&self) -> u64 {
        self.ran.last().map_or(0, |&round| round + 1)
    }
}

fn snapshot(ledger: &Ledger<Machine>, round: u64) -> Checkpoint {
    Checkpoint {
        round,
        epoch: round / 4,
        ledger: ledger.position(),
        vectors: [("weights".to_owned(), vec![round as f32, f32::NAN, -0.0])].into(),
        numbers: [("seconds".to_owned(), 0.5)].into(),
    }
}

/// One process: creates or opens the ledger and goes on to the end, or until the power goes.
fn process(machine: &Machine, mechanism: &Mechanism, oracle: &mut Oracle) -> Result<(), String> {
    let path = Path::new(LEDGER);
    let ledger = if oracle.begun {
        // The power may go while the ledger is being opened, but it is never refused.
        match Ledger::open_in(machine.clone(), path, header(mechanism)) {
            Err(error @ LedgerError::Io { .. }) => return Err(error.to_string()),
            Err(LedgerError::Finished { rounds }) => {
                assert_eq!(rounds, total(mechanism));
                return Ok(());
            }
            other => other.unwrap(),
        }
    } else {
        Ledger::create_in(machine.clone(), path, header(mechanism)).map_err(|e| e.to_string())?
    };
    oracle.begun = true;
    let mut ledger = ledger.with_blocks(BLOCKS);
    assert!(ledger.spent() >= oracle.least());
    if let Some(last) = ledger.spent().checked_sub(1) {
        let again = ledger.charge(last);
        assert!(matches!(again, Err(LedgerError::Repeated { .. })), "{again:?}");
    }
    if let Some(round) = oracle.checkpoint {
        let checkpoint = Checkpoint::read_in(machine, Path::new(CHECKPOINT)).unwrap();
        assert!(checkpoint.round >= round);
        let history = History::read_in(machine, path, header(mechanism).identity()).unwrap();
        history.require(path, &checkpoint.ledger, "the checkpoint").unwrap();
    }
    for round in ledger.spent()..total(mechanism) {
        ledger.charge(round).map_err(|e| e.to_string())?;
        oracle.ran.push(round);
        if round % 5 == 1 {
            let checkpoint = snapshot(&ledger, round + 1);
            checkpoint.write_in(machine, Path::new(CHECKPOINT)).map_err(|e| e.to_string())?;
            oracle.checkpoint = Some(round + 1);
        }
    }
    ledger.finish().map_err(|e| e.to_string())
}

fn total(mechanism: &Mechanism) -> u64 {
    mechanism.phases().iter().map(|phase| phase.rounds()).sum()
}

/// The power fails during every operation of a run, and then again during every operation of the run that
/// takes it up, with everything, nothing or a part of the unsynced bytes left each time.
#[test]
fn power_may_fail_at_any_two_moments() {
    for mechanism in [subsample(7), shuffle(10), allocate(10)] {
        let (mut interrupted, mut lost) = (0, 0);
        for first in 1.. {
            let machine = Machine::boot(World::default(), Some(first));
            let mut before = Oracle::default();
            let done = process(&machine, &mechanism, &mut before).is_ok();
            for end in
                [End::Killed, End::Lost, End::Written, End::Zeros, End::Prefix(first), End::Prefix(!first)]
            {
                let world = machine.after(end);
                if !before.begun {
                    // Nobody was told that there is a ledger, and no round happened.
                    assert!(before.ran.is_empty());
                    continue;
                }
                for second in 1.. {
                    let machine = Machine::boot(world.clone(), Some(second));
                    let mut oracle = before.clone();
                    let done = process(&machine, &mechanism, &mut oracle).is_ok();
                    for end in [End::Killed, End::Lost, End::Prefix(first * 1000 + second)] {
                        let machine = Machine::boot(machine.after(end), None);
                        let mut oracle = oracle.clone();
                        process(&machine, &mechanism, &mut oracle).unwrap();
                        assert!(oracle.ran.is_sorted_by(|a, b| a < b), "a round happened twice: {oracle:?}");
                        for pair in oracle.ran.windows(2).filter(|pair| pair[1] != pair[0] + 1) {
                            lost += 1;
                            let by_epoch = !matches!(
                                mechanism.phases()[0].sampling(),
                                Sampling::Subsample { .. } | Sampling::Poisson { .. }
                            );
                            assert!(
                                !by_epoch || pair[1] % 4 == 0,
                                "an epoch was taken up inside: {oracle:?}"
                            );
                        }
                        let history =
                            History::read_in(&machine, Path::new(LEDGER), header(&mechanism).identity())
                                .unwrap();
                        assert!(history.finished());
                        assert_eq!(history.spent(), total(&mechanism));
                        interrupted += 1;
                    }
                    if done {
                        break;
                    }
                }
            }
            if done {
                break;
            }
        }
        assert!(interrupted > 10_000 && lost > 1000, "{interrupted} {lost}");
    }
}

/// The files of a run that was stopped after some rounds, with the head as it was after every record.
struct Files {
    mechanism: Mechanism,
    ledger: Vec<u8>,
    head: Vec<u8>,
    checkpoint: Checkpoint,
    /// The head and the length of the ledger after every record.
    past: Vec<(Vec<u8>, usize)>,
    least: u64,
}

fn files(mechanism: Mechanism, blocks: Blocks) -> Files {
    let machine = Machine::default();
    let mut ledger = Ledger::create_in(machine.clone(), Path::new(LEDGER), header(&mechanism))
        .unwrap()
        .with_blocks(blocks);
    let mut past = Vec::new();
    let mut note = || {
        let now = (machine.bytes(HEAD), machine.bytes(LEDGER).len());
        if past.last() != Some(&now) {
            past.push(now);
        }
    };
    note();
    for round in 0..5 {
        ledger.charge(round).unwrap();
        note();
    }
    drop(ledger);
    let mut ledger =
        Ledger::open_in(machine.clone(), Path::new(LEDGER), header(&mechanism)).unwrap().with_blocks(blocks);
    note();
    let round = ledger.spent();
    ledger.charge(round).unwrap();
    note();
    let checkpoint = snapshot(&ledger, round + 1);
    let (ledger, head) = (machine.bytes(LEDGER), machine.bytes(HEAD));
    Files { mechanism, ledger, head, checkpoint, past, least: round + 1 }
}

fn read(ledger: &[u8], head: &[u8], mechanism: &Mechanism) -> Result<History, LedgerError> {
    let machine = Machine::of(&[(LEDGER, ledger), (HEAD, head)]);
    let found = History::read_in(&machine, Path::new(LEDGER), header(mechanism).identity());
    // Opening for writing agrees, and a refused file is left as it was.
    match (&found, Ledger::open_in(machine.clone(), Path::new(LEDGER), header(mechanism))) {
        (Ok(history), Ok(opened)) => assert_eq!(history.spent(), opened.spent()),
        (Err(found), Err(opened)) => {
            assert_eq!(found.to_string(), opened.to_string());
            assert_eq!((machine.bytes(LEDGER), machine.bytes(HEAD)), (ledger.to_vec(), head.to_vec()));
        }
        other => panic!("{other:?}"),
    }
    found
}

#[test]
fn every_changed_byte_and_every_shortening_is_refused() {
    let Files { mechanism, ledger, head, checkpoint, past, least } = files(subsample(30), BLOCKS);
    assert!(read(&ledger, &head, &mechanism).unwrap().spent() >= least);
    let flips = |bytes: &[u8], accepts: &dyn Fn(&[u8]) -> bool| {
        for at in 0..bytes.len() {
            let mut changed = bytes.to_vec();
            for mask in 1..=255 {
                changed[at] = bytes[at] ^ mask;
                assert!(!accepts(&changed), "byte {at}, mask {mask}");
            }
        }
        for length in 0..bytes.len() {
            assert!(!accepts(&bytes[..length]), "length {length}");
        }
        for extra in [&b"\n"[..], b"0", b" "] {
            assert!(!accepts(&[extra, bytes].concat()));
        }
    };
    flips(&ledger, &|changed| read(changed, &head, &mechanism).is_ok());
    flips(&head, &|changed| read(&ledger, changed, &mechanism).is_ok());
    flips(&checkpoint.to_bytes(), &|changed| Checkpoint::from_bytes(changed).is_ok());
    assert!(read(&ledger, &[&head[..], b"\n"].concat(), &mechanism).is_err());
    assert!(Checkpoint::from_bytes(&[&checkpoint.to_bytes()[..], b"\n"].concat()).is_err());
    // Both shortened at once: only what fits each other is believed.
    for (_, cut) in past {
        for length in 0..head.len() {
            assert!(read(&ledger[..cut], &head[..length], &mechanism).is_err());
        }
    }
}

/// The last record is on the disk and its head is not: none of its rounds has happened.
#[test]
fn only_an_unacknowledged_last_line_may_be_incomplete() {
    let Files { mechanism, ledger, past, .. } = files(subsample(30), BLOCKS);
    let (last, before) = (past.len() - 1, past.len() - 2);
    let whole = read(&ledger, &past[last].0, &mechanism).unwrap().spent();
    let least = read(&ledger[..past[before].1], &past[before].0, &mechanism).unwrap().spent();
    assert!(least < whole);
    // One behind is forgiven, and the record counts; two behind is not.
    assert_eq!(read(&ledger, &past[before].0, &mechanism).unwrap().spent(), whole);
    assert!(read(&ledger, &past[before - 1].0, &mechanism).is_err());
    for length in 0..ledger.len() {
        let found = read(&ledger[..length], &past[before].0, &mechanism);
        assert_eq!(found.is_ok(), length >= past[before].1, "length {length}");
        assert!(found.is_err() || found.unwrap().spent() == least);
        // A torn line after a record that is not in the head is not what a crash leaves.
        let older = read(&ledger[..length], &past[before - 1].0, &mechanism);
        assert_eq!(older.is_ok(), (past[before - 1].1..=past[before].1).contains(&length));
    }
    for at in 0..ledger.len() {
        let mut changed = ledger.clone();
        for mask in 1..=255 {
            changed[at] = ledger[at] ^ mask;
            let found = read(&changed, &past[before].0, &mechanism);
            // Without its end, the line is incomplete.
            assert_eq!(found.is_ok(), at == ledger.len() - 1, "byte {at}, mask {mask}");
            assert!(found.is_err() || found.unwrap().spent() == least);
        }
    }
}

#[test]
fn an_older_copy_of_both_files_is_refused_by_the_checkpoint() {
    let Files { mechanism, ledger, checkpoint, past, .. } = files(subsample(30), BLOCKS);
    let path = Path::new(LEDGER);
    let LedgerPosition { sequence, .. } = checkpoint.ledger;
    assert_eq!(sequence as usize, past.len() - 1);
    for (number, (head, length)) in past.iter().enumerate() {
        let history = read(&ledger[..*length], head, &mechanism).unwrap();
        let known = history.require(path, &checkpoint.ledger, "the checkpoint");
        assert_eq!(known.is_ok(), number == past.len() - 1);
        if let Err(error) = known {
            assert!(error.to_string().contains("the checkpoint remembers record"), "{error}");
        }
    }
    // As long, but with another past.
    let other = files(subsample(30), Blocks { first: 2, most: 2 });
    let history = read(&other.ledger, &other.head, &mechanism).unwrap();
    assert!(history.position().sequence >= sequence);
    assert!(history.require(path, &checkpoint.ledger, "the checkpoint").is_err());
}

#[test]
fn spliced_and_reordered_records_are_refused() {
    let Files { mechanism, ledger, past, .. } = files(subsample(30), BLOCKS);
    let other = files(subsample(30), Blocks { first: 2, most: 2 });
    let lines = |bytes: &[u8]| bytes.split_inclusive(|&b| b == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
    let (lines, foreign) = (lines(&ledger), lines(&other.ledger));
    let mut made: Vec<Vec<Vec<u8>>> = Vec::new();
    for i in 0..lines.len() {
        for j in 0..=lines.len() {
            let mut moved = lines.clone();
            let line = moved.remove(i);
            made.push(moved.clone());
            moved.insert(j.min(lines.len() - 1), line.clone());
            made.push(moved);
            let mut doubled = lines.clone();
            doubled.insert(j, line);
            made.push(doubled);
            if j < foreign.len() {
                made.push([&lines[..i], &foreign[j..]].concat());
                let mut replaced = lines.clone();
                replaced[i] = foreign[j].clone();
                made.push(replaced);
            }
        }
    }
    let mut refused = 0;
    for made in made {
        let bytes = made.concat();
        // The lines of either ledger up to some record are no splice.
        if ledger.starts_with(&bytes) || other.ledger.starts_with(&bytes) {
            continue;
        }
        for (head, _) in past.iter().chain(&other.past) {
            assert!(read(&bytes, head, &mechanism).is_err(), "{}", String::from_utf8_lossy(&bytes));
        }
        refused += 1;
    }
    assert!(refused > 50);
}

#[test]
fn another_run_is_refused_by_the_setting_that_differs() {
    let Files { mechanism, ledger, head, .. } = files(subsample(30), BLOCKS);
    let machine = Machine::of(&[(LEDGER, &ledger), (HEAD, &head)]);
    let changed = RunConfig { differing: 2, ..mechanism.config() }.check().unwrap();
    for (given, field) in [
        (Identity::new(b"model = \"mlp\"\n", mechanism.clone(), true), "config="),
        (
            Identity::new(CONFIG, mechanism.clone(), false),
            "randomness=private, this one is randomness=seeded",
        ),
        (Identity::new(CONFIG, subsample(31), true), "rounds=30, this one is rounds=31"),
        (Identity::new(CONFIG, changed, true), "mechanism="),
    ] {
        let error = History::read_in(&machine, Path::new(LEDGER), &given).unwrap_err();
        assert!(matches!(error, LedgerError::OtherRun { .. }), "{error}");
        assert!(error.to_string().contains(field) && !error.to_string().contains('\n'), "{error}");
    }
}

#[test]
fn a_round_is_charged_once_and_a_broken_ledger_stays_broken() {
    let mechanism = shuffle(10);
    let machine = Machine::default();
    let path = Path::new(LEDGER);
    let mut ledger = Ledger::create_in(machine.clone(), path, header(&mechanism)).unwrap();
    let error = Ledger::create_in(machine.clone(), path, header(&mechanism)).unwrap_err();
    assert!(matches!(error, LedgerError::Exists(_)));
    ledger = ledger.with_blocks(Blocks { first: 1, most: 1 });
    ledger.charge(0).unwrap();
    assert_eq!(ledger.spent(), 4, "a begun epoch is charged whole");
    let position = ledger.position();
    for round in 1..4 {
        ledger.charge(round).unwrap();
    }
    assert_eq!(ledger.position(), position, "no record for a round that is charged");
    assert!(matches!(ledger.charge(3), Err(LedgerError::Repeated { round: 3, next: 4 })));
    assert!(matches!(ledger.charge(10), Err(LedgerError::Beyond { .. })));
    // The rounds that are passed over are charged too; the last epoch has two rounds.
    ledger.charge(9).unwrap();
    assert_eq!(ledger.spent(), 10);
    ledger.finish().unwrap();
    assert!(matches!(ledger.charge(9), Err(LedgerError::Finished { .. })));
    assert!(matches!(Ledger::open_in(machine, path, header(&mechanism)), Err(LedgerError::Finished { .. })));

    // The record of the first charge is written, its sync fails.
    let machine = Machine::boot(World::default(), Some(100));
    let mut ledger = Ledger::create_in(machine.clone(), path, header(&mechanism)).unwrap();
    machine.power_fails_after(Some(2));
    assert!(matches!(ledger.charge(0), Err(LedgerError::Io { doing: "sync", .. })));
    machine.power_fails_after(None);
    assert!(matches!(ledger.charge(0), Err(LedgerError::Broken)), "a second sync may lie");
    assert!(matches!(ledger.finish(), Err(LedgerError::Broken)));
}

/// The time of a round follows the size of its batch, so nothing in the ledger may follow the time.
#[test]
fn an_allocated_run_is_charged_by_whole_epochs_on_a_fixed_schedule() {
    let mechanism = allocate(150);
    assert!(!mechanism.size_is_public());
    let charged = |pause: Duration| {
        let machine = Machine::default();
        let mut ledger = Ledger::create_in(machine.clone(), Path::new(LEDGER), header(&mechanism)).unwrap();
        ledger = ledger.with_blocks(Blocks { first: 3, most: 30 });
        for round in 0..150 {
            ledger.charge(round).unwrap();
            assert!(ledger.spent() > round && (ledger.spent() % 4 == 0 || ledger.spent() == 150));
            sleep(pause);
        }
        machine.bytes(LEDGER)
    };
    let text = charged(Duration::ZERO);
    let blocks: Vec<u64> = String::from_utf8(text.clone())
        .unwrap()
        .lines()
        .filter_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            [_, "charge", _, to, _] => Some(to.parse().unwrap()),
            _ => None,
        })
        .collect();
    // 3, 6, 12, 24, 30 and 30 rounds and so on, each extended to the end of its epoch.
    assert_eq!(blocks, [4, 12, 24, 48, 80, 112, 144, 150]);
    assert_eq!(charged(Duration::from_millis(1)), text);
}

#[test]
fn a_damaged_checkpoint_is_an_error_that_names_the_one_before_it() {
    let machine = Machine::default();
    let path = Path::new(CHECKPOINT);
    let missing = Checkpoint::read_in(&machine, path).unwrap_err();
    assert!(matches!(missing, CheckpointError::Missing(_)));
    let [older, newer] = [3, 8].map(|round| Checkpoint {
        round,
        vectors: [("w".to_owned(), vec![f32::MIN_POSITIVE, -0.0]), (String::new(), Vec::new())].into(),
        numbers: [("η".to_owned(), f64::INFINITY)].into(),
        ..Checkpoint::default()
    });
    older.write_in(&machine, path).unwrap();
    newer.write_in(&machine, path).unwrap();
    assert_eq!(Checkpoint::read_in(&machine, path).unwrap(), newer);
    let mut bytes = newer.to_bytes();
    bytes[40] ^= 1;
    let damaged =
        Machine::of(&[(CHECKPOINT, &bytes), ("checkpoint.previous", &machine.bytes("checkpoint.previous"))]);
    let error = Checkpoint::read_in(&damaged, path).unwrap_err().to_string();
    assert!(error.contains("rename checkpoint.previous to checkpoint to go on from round 3"), "{error}");
    damaged.rename(Path::new("checkpoint.previous"), path).unwrap();
    assert_eq!(Checkpoint::read_in(&damaged, path).unwrap(), older);
}

/// A process that is asked to stop gives back what it has not used, and not a round more, whenever the power
/// fails: every round that ran stays charged, and the next process takes up after the last of them.
#[test]
fn a_polite_stop_never_gives_back_a_round_that_ran() {
    for mechanism in [subsample(20), shuffle(20), allocate(20)] {
        for ran in [1, 3, 5, 8] {
            let mut whole = 0;
            for first in 1.. {
                let machine = Machine::boot(World::default(), Some(first));
                let mut oracle = Oracle::default();
                let stopped = stops_after(&machine, &mechanism, ran, &mut oracle);
                for end in [
                    End::Killed,
                    End::Lost,
                    End::Written,
                    End::Zeros,
                    End::Prefix(first),
                    End::Prefix(!first),
                ] {
                    if !oracle.begun {
                        continue;
                    }
                    let machine = Machine::boot(machine.after(end), None);
                    let opened =
                        Ledger::open_in(machine.clone(), Path::new(LEDGER), header(&mechanism)).unwrap();
                    let exact = mechanism.resume_at(oracle.least());
                    assert!(opened.spent() >= exact, "{ran} {first} {end:?}");
                    if stopped.is_ok() {
                        assert_eq!(opened.spent(), exact, "{ran} {first} {end:?}");
                        whole += 1;
                    }
                    drop(opened);
                    oracle.clone().finishes(&machine, &mechanism);
                }
                if stopped.is_ok() {
                    break;
                }
            }
            assert!(whole > 0);
        }
    }
}

impl Oracle {
    /// A further process runs the rest; none of its rounds ran before.
    fn finishes(mut self, machine: &Machine, mechanism: &Mechanism) {
        let before = self.ran.len();
        process(machine, mechanism, &mut self).unwrap();
        let (old, new) = self.ran.split_at(before);
        assert!(new.iter().all(|round| !old.contains(round)));
    }
}

/// Runs some rounds, then stops politely, after which it can charge nothing.
fn stops_after(
    machine: &Machine,
    mechanism: &Mechanism,
    rounds: u64,
    oracle: &mut Oracle,
) -> Result<(), LedgerError> {
    let ledger = Ledger::create_in(machine.clone(), Path::new(LEDGER), header(mechanism))?;
    oracle.begun = true;
    let mut ledger = ledger.with_blocks(BLOCKS);
    for round in 0..rounds {
        ledger.charge(round)?;
        oracle.ran.push(round);
    }
    let stopped = ledger.stop();
    let again = ledger.charge(rounds);
    assert!(matches!(again, Err(LedgerError::Stopped { .. } | LedgerError::Broken)), "{again:?}");
    stopped
}

/// Remembers everything, or refuses from a certain call on.
#[derive(Clone, Debug, Default)]
struct Remembers(Arc<std::sync::Mutex<Vec<Standing>>>, Option<usize>);

impl Witness for Remembers {
    fn place(&self) -> std::path::PathBuf {
        "outside".into()
    }

    fn remember(&mut self, standing: &Standing) -> std::io::Result<()> {
        let mut seen = self.0.lock().unwrap();
        if self.1 == Some(seen.len()) {
            return Err(std::io::Error::other("no room outside"));
        }
        seen.push(*standing);
        Ok(())
    }
}

/// No round happens that the witness does not know of; where it fails, no further round can.
#[test]
fn the_witness_knows_of_every_round_before_it_happens() {
    let mechanism = subsample(20);
    for fails in [None, Some(0), Some(1), Some(3)] {
        let machine = Machine::boot(World::default(), None);
        let mut ledger = Ledger::create_in(machine, Path::new(LEDGER), header(&mechanism)).unwrap();
        ledger = ledger.with_blocks(BLOCKS);
        let witness = Remembers(Arc::default(), fails);
        let seen = witness.0.clone();
        let mut ran = 0;
        if ledger.witnessed_by(Box::new(witness)).is_ok() {
            while ran < 20 && ledger.charge(ran).is_ok() {
                ran += 1;
                let last = *seen.lock().unwrap().last().unwrap();
                assert!(last.charged >= ran && last.position == ledger.position(), "{last:?}");
            }
        }
        let known = seen.lock().unwrap().last().map_or(0, |last| last.charged);
        assert_eq!(ran, if fails.is_none() { 20 } else { known }, "{fails:?}");
        match fails {
            None => ledger.finish().unwrap(),
            Some(0) => continue,
            Some(_) => assert!(matches!(ledger.charge(ran), Err(LedgerError::Broken))),
        }
        assert_eq!(seen.lock().unwrap().last().unwrap().finished, fails.is_none());
    }
}

/// Rounds that happened in another copy count, and are not run here.
#[test]
fn rounds_of_another_copy_are_charged() {
    for mechanism in [subsample(20), shuffle(20)] {
        let machine = Machine::boot(World::default(), None);
        let mut ledger = Ledger::create_in(machine.clone(), Path::new(LEDGER), header(&mechanism)).unwrap();
        ledger.charge_elsewhere(9).unwrap();
        let spent = mechanism.resume_at(9);
        assert_eq!(ledger.spent(), spent);
        assert!(matches!(ledger.charge(spent - 1), Err(LedgerError::Repeated { .. })));
        ledger.charge_elsewhere(4).unwrap();
        assert_eq!(ledger.spent(), spent, "nothing is given back");
        ledger.charge(spent).unwrap();
        drop(ledger);
        let history = History::read_in(&machine, Path::new(LEDGER), header(&mechanism).identity()).unwrap();
        assert!(history.spent() > spent);
    }
}

/// A private test set is measured once: not again after a crash between the record and the result, nor in a copy.
#[test]
fn a_private_test_set_is_measured_once() {
    let mechanism = subsample(20);
    let machine = Machine::boot(World::default(), None);
    let mut ledger = Ledger::create_in(machine.clone(), Path::new(LEDGER), header(&mechanism)).unwrap();
    let witness = Remembers(Arc::default(), None);
    let seen = witness.0.clone();
    ledger.witnessed_by(Box::new(witness)).unwrap();
    ledger.charge(0).unwrap();
    assert!(ledger.measure().unwrap());
    assert!(seen.lock().unwrap().last().unwrap().measured, "the witness knows before it happens");
    assert!(!ledger.measure().unwrap());
    drop(ledger);
    let mut again = Ledger::open_in(machine.clone(), Path::new(LEDGER), header(&mechanism)).unwrap();
    assert!(!again.measure().unwrap());
    assert_eq!(
        again.spent(),
        History::read_in(&machine, Path::new(LEDGER), header(&mechanism).identity()).unwrap().spent()
    );
    // Nothing is measured by a process that has stopped.
    again.charge(again.spent()).unwrap();
    again.stop().unwrap();
    assert!(again.measure().is_err());
    // In another copy of the run it counts as done.
    let other = Machine::boot(World::default(), None);
    let mut copy = Ledger::create_in(other, Path::new(LEDGER), header(&mechanism)).unwrap();
    copy.measured_elsewhere().unwrap();
    assert!(!copy.measure().unwrap());
}
