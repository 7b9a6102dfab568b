//! Ledgers, checkpoints and metrics that are almost right, some of them with digests that fit: refused, or
//! read as something that a run could have written. Never a panic, and never fewer rounds than were
//! acknowledged.

#[path = "ledger/machine.rs"]
mod machine;
#[path = "../../data/tests/mutate/mod.rs"]
mod mutate;
#[path = "ledger/run.rs"]
mod run;

use std::fs;
use std::path::{Path, PathBuf};

use dpsgd_train::TrainerState;
use dpsgd_train::checkpoint::Checkpoint;
use dpsgd_train::directory::{DirectoryError, METRICS, RunDirectory};
use dpsgd_train::ledger::{Blocks, Digest, Header, History, Identity, Ledger, LedgerError};
use machine::Machine;
use mutate::{changed, changed_text, config};
use proptest::prelude::*;
use run::{mechanism, plan};

const LEDGER: &str = "ledger";
const HEAD: &str = "ledger.head";
const CONFIG: &[u8] = b"model = \"lenet5\"\n";
const ROUNDS: u64 = 22;

/// The texts of the records of a run that was taken up once, without numbers and digests.
fn records(shuffled: bool) -> Vec<String> {
    let (machine, path) = (Machine::default(), Path::new(LEDGER));
    let header = || Header::new(CONFIG, plan(shuffled, ROUNDS), true);
    let blocks = Blocks { first: 3, most: 3 };
    let mut ledger = Ledger::create_in(machine.clone(), path, header()).unwrap().with_blocks(blocks);
    ledger.charge(0).unwrap();
    ledger.charge(6).unwrap();
    let mut ledger = Ledger::open_in(machine.clone(), path, header()).unwrap().with_blocks(blocks);
    ledger.charge(ledger.spent()).unwrap();
    ledger.finish().unwrap();
    let text = String::from_utf8(machine.bytes(LEDGER)).unwrap();
    let body = |line: &str| line.split_once(' ').unwrap().1.rsplit_once(' ').unwrap().0.to_string();
    text.lines().map(body).collect()
}

/// A ledger of these records with numbers and digests that fit, and its head.
fn forged(records: &str) -> (Vec<u8>, Vec<u8>) {
    let line = |number: usize, text: &str, previous: &Digest| {
        let body = format!("{number} {text}");
        let digest = Digest::of(&[&previous.0, body.as_bytes()]);
        (format!("{body} {digest}\n"), digest)
    };
    let (mut ledger, mut last) = (String::new(), Digest::default());
    for (number, text) in records.lines().enumerate() {
        let (line, digest) = line(number, text, &last);
        ledger.push_str(&line);
        last = digest;
    }
    let number = records.lines().count().saturating_sub(1);
    let head = line(number, &format!("dpsgd-ledger-head=1 {last}"), &Digest::default()).0;
    (ledger.into_bytes(), head.into_bytes())
}

fn read(ledger: &[u8], head: &[u8], shuffled: bool) -> Result<History, LedgerError> {
    let machine = Machine::of(&[(LEDGER, ledger), (HEAD, head)]);
    let identity = Identity::new(CONFIG, mechanism(shuffled, ROUNDS), true);
    History::read_in(&machine, Path::new(LEDGER), &identity)
}

fn checkpoints() -> Vec<Vec<u8>> {
    let state = Checkpoint {
        round: 8,
        epoch: 2,
        vectors: ["weights", "outer-first", "outer-second"]
            .map(|name| (name.to_string(), vec![0.5, f32::NAN, -0.0]))
            .into(),
        numbers: ["outer-steps", "clip-factor", "step-factor"].map(|name| (name.to_string(), 1.0)).into(),
        ..Checkpoint::default()
    };
    vec![state.to_bytes(), Checkpoint::default().to_bytes()]
}

fn place(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("dpsgd-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    path
}

proptest! {
    #![proptest_config(config(5000))]

    /// A forger is not kept out, but does not get anything that the reader did not check.
    #[test]
    fn forged_records_charge_what_a_run_can_charge(
        shuffled in any::<bool>(),
        text in any::<bool>().prop_flat_map(|shuffled| changed_text(vec![records(shuffled).join("\n")])),
    ) {
        let (ledger, head) = forged(&text);
        match read(&ledger, &head, shuffled) {
            Ok(history) => {
                prop_assert!(history.spent() <= ROUNDS);
                prop_assert!(!shuffled || history.spent().is_multiple_of(4) || history.spent() == ROUNDS);
                prop_assert!(text.starts_with(&records(shuffled)[0]), "another run");
            }
            Err(error) => prop_assert!(error.to_string().contains(LEDGER), "{}", error),
        }
    }

    /// Without new digests, every change is noticed.
    #[test]
    fn changed_ledgers_and_heads_are_refused(
        (shuffled, ledger, head) in any::<bool>().prop_flat_map(|shuffled| {
            let (ledger, head) = forged(&records(shuffled).join("\n"));
            (Just(shuffled), changed(vec![ledger]), prop_oneof![Just(head.clone()), changed(vec![head])])
        }),
    ) {
        let whole = forged(&records(shuffled).join("\n"));
        let found = read(&ledger, &head, shuffled);
        // After the last acknowledged record a line may have been begun.
        let begun = ledger.strip_prefix(&whole.0[..]).is_some_and(|more| !more.contains(&b'\n'));
        prop_assert_eq!(found.is_ok(), begun && head == whole.1, "{:?}", found);
        if let Ok(history) = found {
            prop_assert_eq!(history.spent(), read(&whole.0, &whole.1, shuffled).unwrap().spent());
        }
    }

    #[test]
    fn changed_checkpoints_are_refused_even_with_a_digest_that_fits(bytes in changed(checkpoints())) {
        if !checkpoints().contains(&bytes) {
            prop_assert!(Checkpoint::from_bytes(&bytes).is_err());
        }
        // The same content with the digest of the content: only what can be written again is read.
        let content = &bytes[..bytes.len().saturating_sub(32)];
        let signed = [content, &Digest::of(&[content]).0].concat();
        if let Ok(checkpoint) = Checkpoint::from_bytes(&signed) {
            let again = Checkpoint::from_bytes(&checkpoint.to_bytes()).unwrap();
            prop_assert_eq!(again.to_bytes(), checkpoint.to_bytes());
            let _ = TrainerState::of(&checkpoint);
        }
    }
}

/// What `dpsgd train` writes, and what a resume does.
const MEASURED: &str = "{\"round\":3,\"epoch\":0.75,\"test_loss\":2.3,\"note\":null}\n\
    {\"round\":6,\"resumed\":1,\"checkpoint_round\":3}\n{\"round\":9,\"epoch\":2.25,\"test_loss\":null}\n";

proptest! {
    #![proptest_config(config(150))]

    /// The metrics are a witness: they may say that rounds are missing from the ledger, and are refused when
    /// they cannot be read, with the file and nothing changed.
    #[test]
    fn changed_metrics_are_refused_or_witnesses(bytes in changed(vec![MEASURED.into()])) {
        let mechanism = mechanism(false, ROUNDS);
        let path = place("fuzz-metrics");
        let directory = RunDirectory::create(&path).unwrap();
        let (mut ledger, _) = directory.start(CONFIG, plan(false, ROUNDS), true).unwrap();
        ledger.charge(0).unwrap();
        let checkpoint = Checkpoint { ledger: ledger.position(), ..Checkpoint::default() };
        directory.write_checkpoint(&checkpoint).unwrap();
        let spent = ledger.spent();
        drop(ledger);
        let metrics = directory.file(METRICS);
        fs::write(&metrics, &bytes).unwrap();
        let before = fs::read(directory.file(LEDGER)).unwrap();
        match directory.resume(plan(false, ROUNDS), true) {
            Ok(resumed) => prop_assert!(resumed.ledger.spent() >= spent),
            Err(DirectoryError::Measurement { path, .. }) => prop_assert_eq!(&path, &metrics),
            Err(error) => {
                let error = error.to_string();
                prop_assert!(error.contains("metrics.jsonl has reached round"), "{}", error);
            }
        }
        if directory.history(&mechanism, true).unwrap().resumes() == 0 {
            prop_assert_eq!(fs::read(&metrics).unwrap(), bytes);
            prop_assert_eq!(fs::read(directory.file(LEDGER)).unwrap(), before);
        }
        drop(directory);
        fs::remove_dir_all(&path).unwrap();
    }
}
