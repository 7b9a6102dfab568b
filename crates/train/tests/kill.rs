//! Real processes, killed at random moments and resumed: whatever left was charged before it left.
//!
//! The test starts its own binary again as the process that trains ([`child`]); what leaves it is a line
//! in a file outside of the run directory, written after `charge` has returned and never synced.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use dpsgd_privacy::mechanism::{
    Length, Mechanism, NoiseScale, PhaseConfig, RunConfig, Sampling, SamplingKind,
};
use dpsgd_train::checkpoint::Checkpoint;
use dpsgd_train::directory::{CHECKPOINT, DirectoryError, LEDGER, RunDirectory};
use dpsgd_train::ledger::{Blocks, Ledger, LedgerError};
use dpsgd_train::{Plan, PlanConfig};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const DIRECTORY: &str = "DPSGD_KILL_DIRECTORY";
const SAMPLING: &str = "DPSGD_KILL_SAMPLING";
const CONFIG: &[u8] = b"kill = true\n";
const EPOCH: u64 = 12;
const ROUNDS: u64 = 2500;
/// What the child says when it was killed before there was anything to resume.
const NOTHING_TO_RESUME: i32 = 3;

fn mechanism(sampling: SamplingKind) -> Mechanism {
    let (samples, groups, group_size) = (EPOCH * 6 + 3, 3, 2);
    let sampling = match sampling {
        SamplingKind::Subsample => Sampling::Subsample { samples, groups, group_size },
        SamplingKind::Shuffle => Sampling::Shuffle { samples, groups, group_size },
        SamplingKind::Poisson => Sampling::Poisson { rate: 1.0 / EPOCH as f64 },
        SamplingKind::Allocate => Sampling::Allocate { rounds: EPOCH },
    };
    let (length, noise) = (Length::Rounds(ROUNDS), NoiseScale::Sigma(1.0));
    RunConfig::single(PhaseConfig { sampling, length, noise, filtered: false }).check().unwrap()
}

fn plan(mechanism: &Mechanism) -> Arc<Plan> {
    Arc::new(PlanConfig::new(mechanism.clone(), 1.0, 0.1).with_divisor(6.0).check().unwrap())
}

fn outside(directory: &Path) -> PathBuf {
    directory.with_extension("released")
}

#[test]
#[ignore = "the process that the test kills, not a test"]
fn child() {
    let Ok(path) = std::env::var(DIRECTORY).map(PathBuf::from) else { return };
    let mechanism = mechanism(std::env::var(SAMPLING).unwrap().parse().unwrap());
    let (directory, mut ledger, mut metrics, mut weight);
    if path.exists() {
        match RunDirectory::open(&path).and_then(|d| Ok((d.resume(plan(&mechanism), true)?, d))) {
            Ok((resumed, opened)) => {
                assert!(resumed.checkpoint.round <= resumed.ledger.spent());
                weight = resumed.checkpoint.vectors["weights"][0];
                // The child adds one to its only weight in every round it does.
                assert!(weight <= resumed.checkpoint.round as f32);
                (directory, ledger, metrics) = (opened, resumed.ledger, resumed.metrics);
            }
            // Killed between the last record and its own end.
            Err(DirectoryError::Ledger(LedgerError::Finished { .. })) => return,
            Err(_) if !outside(&path).exists() => std::process::exit(NOTHING_TO_RESUME),
            Err(error) => panic!("{error}"),
        }
    } else {
        directory = RunDirectory::create(&path).unwrap();
        (ledger, metrics) = directory.start(CONFIG, plan(&mechanism), true).unwrap();
        weight = 0.0;
        save(&directory, &ledger, 0, weight);
    }
    ledger = ledger.with_blocks(Blocks { first: 3, most: 11 });
    let mut released = OpenOptions::new().append(true).create(true).open(outside(&path)).unwrap();
    for round in ledger.spent()..ROUNDS {
        ledger.charge(round).unwrap();
        released.write_all(format!("{round}\n").as_bytes()).unwrap();
        weight += 1.0;
        if round % 17 == 0 {
            save(&directory, &ledger, round + 1, weight);
            metrics.append(round + 1, Default::default()).unwrap();
        }
    }
    save(&directory, &ledger, ROUNDS, weight);
    ledger.finish().unwrap();
}

fn save(directory: &RunDirectory, ledger: &Ledger, round: u64, weight: f32) {
    let checkpoint = Checkpoint {
        round,
        epoch: round / EPOCH,
        ledger: ledger.position(),
        vectors: [("weights".to_owned(), vec![weight])].into(),
        numbers: BTreeMap::new(),
    };
    directory.write_checkpoint(&checkpoint).unwrap();
}

fn spawn(directory: &Path, sampling: SamplingKind) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "child", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(SAMPLING, sampling.name())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// The rounds that left, in the order in which they did; a line that is not complete did not.
fn released(directory: &Path) -> Vec<u64> {
    let text = fs::read_to_string(outside(directory)).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| line.parse().unwrap()).collect()
}

/// The end of the last block in the ledger, read without any of the code under test.
fn charged(directory: &Path) -> u64 {
    let text = fs::read_to_string(directory.join(LEDGER)).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .lines()
        .filter_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            [_, "charge", _, to, _] => Some(to.parse().unwrap()),
            _ => None,
        })
        .max()
        .unwrap_or(0)
}

/// An empty place of its own for every test.
fn place(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("dpsgd-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn killed_runs_charge_before_they_release_and_never_release_twice() {
    let place = place("kill");
    let mut random = ChaCha8Rng::seed_from_u64(0x6b696c6c);
    let (mut kills, mut resumed, mut lost, mut inside_loop) = (0, 0, 0, 0);
    for run in 0.. {
        if kills >= 60 {
            break;
        }
        let kinds = [SamplingKind::Subsample, SamplingKind::Shuffle, SamplingKind::Allocate];
        let (directory, sampling) = (place.join(format!("run-{run}")), kinds[run % 3]);
        let mechanism = mechanism(sampling);
        let by_epoch = sampling != SamplingKind::Subsample;
        let mut before: Vec<u64> = Vec::new();
        loop {
            let mut child = spawn(&directory, sampling);
            // Half of the moments are counted from the start of the process, half from the moment in which it
            // releases again, so that the kills hit the opening as well as the rounds.
            if random.random_bool(0.5) {
                let wait = Instant::now();
                while released(&directory).len() == before.len() && wait.elapsed() < Duration::from_secs(5) {
                    if child.try_wait().unwrap().is_some() {
                        break;
                    }
                    sleep(Duration::from_micros(100));
                }
            }
            sleep(Duration::from_micros(random.random_range(0..20_000)));
            child.kill().unwrap();
            let status = child.wait().unwrap();
            kills += u32::from(status.code().is_none());
            let now = released(&directory);
            if status.code() == Some(NOTHING_TO_RESUME) {
                assert!(now.is_empty());
                fs::remove_dir_all(&directory).unwrap();
                continue;
            }
            assert!(status.code().is_none_or(|code| code == 0), "the child failed: {status}");
            assert!(now.starts_with(&before));
            assert!(now.is_sorted_by(|a, b| a < b), "a round was released twice");
            assert!(now.last().is_none_or(|&last| last < charged(&directory)), "released before charged");
            if let (Some(&last), Some(&first)) = (before.last(), now.get(before.len())) {
                resumed += 1;
                lost += first - last - 1;
                assert!(!by_epoch || first % EPOCH == 0, "an epoch was taken up inside");
            }
            inside_loop += u32::from(now.len() > before.len());
            before = now;
            if status.success() {
                let history = RunDirectory::view(&directory).unwrap();
                let history = history.history(&mechanism, true).unwrap();
                assert!(history.finished());
                assert_eq!((history.spent(), charged(&directory)), (ROUNDS, ROUNDS));
                break;
            }
            if kills >= 60 {
                // Enough: the next process may go on to the end.
                assert!(spawn(&directory, sampling).wait().unwrap().success());
                let whole = released(&directory);
                assert!(whole.is_sorted_by(|a, b| a < b) && whole.starts_with(&before));
                assert_eq!(charged(&directory), ROUNDS);
                break;
            }
        }
    }
    // The test would prove nothing if the kills came before or after everything.
    assert!(resumed >= 15 && inside_loop >= 15 && lost >= 15, "{kills} {resumed} {inside_loop} {lost}");
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn two_processes_cannot_train_in_one_directory() {
    let place = place("lock");
    let directory = place.join("run");
    let mut child = spawn(&directory, SamplingKind::Subsample);
    let wait = Instant::now();
    while !directory.join(CHECKPOINT).exists() {
        assert!(wait.elapsed() < Duration::from_secs(300), "the child does not start");
        sleep(Duration::from_micros(100));
    }
    // It has thousands of rounds before it; if it was done before we asked, nothing can be said.
    let second = RunDirectory::open(&directory);
    if child.try_wait().unwrap().is_none() {
        assert!(matches!(second, Err(DirectoryError::InUse(_))), "{second:?}");
    }
    drop(second);
    // Looking is allowed.
    RunDirectory::view(&directory).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let first = RunDirectory::open(&directory).unwrap();
    assert!(matches!(RunDirectory::open(&directory), Err(DirectoryError::InUse(_))));
    drop(first);
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn a_directory_with_anything_in_it_is_left_alone() {
    let place = place("full");
    let file = place.join("file");
    File::create(&file).unwrap();
    for path in [&place, &file] {
        assert!(matches!(RunDirectory::create(path), Err(DirectoryError::NotEmpty(_))));
    }
    assert_eq!(fs::read_dir(&place).unwrap().count(), 1, "nothing half-written");
    let error = RunDirectory::open(&place.join("none")).unwrap_err();
    assert!(matches!(error, DirectoryError::NoRun { .. }), "{error}");
    fs::remove_dir_all(&place).unwrap();
}

/// The files of an orderly stopped run after 34 rounds, and then one thing changed.
#[test]
fn what_is_missing_or_shortened_is_named() {
    let place = place("pieces");
    let mechanism = mechanism(SamplingKind::Subsample);
    let stopped = |name: &str| {
        let path = place.join(name);
        let directory = RunDirectory::create(&path).unwrap();
        let (ledger, mut metrics) = directory.start(CONFIG, plan(&mechanism), true).unwrap();
        save(&directory, &ledger, 0, 0.0);
        let old = ["ledger", "ledger.head"].map(|file| (file, fs::read(path.join(file)).unwrap()));
        let mut ledger = ledger.with_blocks(Blocks { first: 5, most: 5 });
        for round in 0..34 {
            ledger.charge(round).unwrap();
        }
        metrics.append(34, Default::default()).unwrap();
        (path, old, ledger, directory)
    };
    let resume = |path: &Path| RunDirectory::open(path).unwrap().resume(plan(&mechanism), true);

    let (path, _, _, directory) = stopped("whole");
    drop(directory);
    let mut text = fs::read(path.join("metrics.jsonl")).unwrap();
    text.extend(b"{\"round\":99");
    fs::write(path.join("metrics.jsonl"), text).unwrap();
    assert_eq!(resume(&path).unwrap().ledger.spent(), 35);
    assert_eq!(
        fs::read_to_string(path.join("metrics.jsonl")).unwrap(),
        "{\"round\":34}\n{\"round\":35,\"resumed\":1,\"checkpoint_round\":0}\n"
    );
    let viewed = RunDirectory::view(&path).unwrap();
    assert!(matches!(viewed.write("summary.json", b"{}"), Err(DirectoryError::NotLocked(_))));
    assert!(
        viewed.read("model.safetensors").unwrap_err().to_string().contains("resume the run to finish it")
    );

    // Ledger and head of before the first round fit each other and the first checkpoint.
    let (path, old, _, directory) = stopped("shortened");
    drop(directory);
    for (file, bytes) in old {
        fs::write(path.join(file), bytes).unwrap();
    }
    let error = resume(&path).unwrap_err().to_string();
    assert!(error.contains("metrics.jsonl has reached round 34 and 0 are charged"), "{error}");

    // And the same, with a later checkpoint and without metrics.
    let (path, old, ledger, directory) = stopped("remembered");
    save(&directory, &ledger, 34, 34.0);
    drop(directory);
    fs::remove_file(path.join("metrics.jsonl")).unwrap();
    for (file, bytes) in old {
        fs::write(path.join(file), bytes).unwrap();
    }
    let error = resume(&path).unwrap_err().to_string();
    assert!(error.contains("the checkpoint remembers record 7"), "{error}");

    for (file, says) in [
        ("config.toml", "config.toml is missing"),
        ("ledger", "ledger is missing"),
        ("ledger.head", "ledger.head: is missing"),
        ("checkpoint", "checkpoint: is missing"),
    ] {
        let (path, _, _, directory) = stopped(&format!("without-{file}"));
        drop(directory);
        fs::remove_file(path.join(file)).unwrap();
        let found = RunDirectory::open(&path).and_then(|d| d.resume(plan(&mechanism), true));
        let error = found.unwrap_err().to_string();
        assert!(error.contains(says) && !error.contains('\n'), "{error}");
    }

    let (path, _, _, directory) = stopped("edited");
    drop(directory);
    fs::write(path.join("config.toml"), b"kill = false\n").unwrap();
    assert!(resume(&path).unwrap_err().to_string().contains("belongs to another run"));
    fs::remove_dir_all(&place).unwrap();
}
