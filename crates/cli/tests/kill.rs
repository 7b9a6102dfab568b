//! `dpsgd train` and `dpsgd resume`, killed two hundred times, and two of them on one directory.
//!
//! Most kills come at random moments. The moments that last microseconds are held open: a FIFO stands where
//! the next file is about to be written, and opening it waits for a reader who never comes, so that the
//! process can be killed exactly there. Every kill is SIGKILL: nothing can be tidied up.

#![cfg(unix)]

mod folder;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use dpsgd::engine::{Network, zoo};
use dpsgd::privacy::mechanism::{Length, Mechanism, NoiseScale, PhaseConfig, RunConfig, Sampling};
use dpsgd::train::checkpoint::Checkpoint;
use dpsgd::train::directory::RunDirectory;
use dpsgd::train::ledger::History;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use folder::Folder;

/// Enough that a process does half of them in no less time than the longest delay, also on a fast machine.
const ROUNDS: u64 = 2000;
const KILLS: usize = 200;

/// Where a kill fell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Before there was anything to resume.
    Start,
    /// In a round, or before the record of the next block: everything in the ledger is acknowledged.
    Round,
    /// Between a record of the ledger and its head.
    Record,
    /// After the measurements of an epoch and before its checkpoint was in place.
    Checkpoint,
    /// After the last checkpoint and before the model was in place.
    Model,
    /// Between the model and the summary.
    Summary,
    /// Between the summary and the end of the ledger.
    Report,
}

/// A process that does not outlive the test, also when the test fails while the process waits at a FIFO.
struct Running(Child);

impl Running {
    /// Kills it, if it has not ended; how it ended, and what it said.
    fn end(&mut self) -> (ExitStatus, String) {
        self.0.kill().unwrap();
        let status = self.0.wait().unwrap();
        let mut error = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        (status, error)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Run {
    folder: Folder,
    path: PathBuf,
    sampling: &'static str,
    mechanism: Mechanism,
    /// The rounds charged when they were last looked at: they never become fewer.
    spent: u64,
}

impl Run {
    fn new(number: usize) -> Self {
        let folder = Folder::new(&format!("kill-{number}"));
        folder.table();
        let (samples, groups, group_size) = (2000, 100, 1);
        let (name, sampling) = match number % 2 {
            0 => ("subsample", Sampling::Subsample { samples, groups, group_size }),
            _ => ("shuffle", Sampling::Shuffle { samples, groups, group_size }),
        };
        let (length, noise) = (Length::Rounds(ROUNDS), NoiseScale::Sigma(2.0));
        let run = RunConfig::single(PhaseConfig { sampling, length, noise, filtered: false });
        let path = folder.path("run");
        Self { folder, path, sampling: name, mechanism: run.check().unwrap(), spent: 0 }
    }

    /// Continues the run, or begins it again if there is nothing to continue.
    fn spawn(&self) -> Running {
        let settings = [
            "--config",
            "people.toml",
            "--rounds",
            "2000",
            "--sigma",
            "2",
            "--normalise",
            "none",
            "--sampling",
            self.sampling,
        ];
        let arguments =
            match self.path.join("checkpoint").exists() || self.path.join("checkpoint.previous").exists() {
                true => vec!["resume", "run", "--threads", "1"],
                false => {
                    let _ = fs::remove_dir_all(&self.path);
                    [&["train", "--out", "run", "--threads", "1"][..], &settings].concat()
                }
            };
        let mut command = self.folder.command(&arguments);
        Running(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the command starts"))
    }

    fn history(&self) -> History {
        RunDirectory::view(&self.path).unwrap().history(&self.mechanism, true).unwrap()
    }

    fn checkpoint(&self) -> Checkpoint {
        Checkpoint::read(&self.path.join("checkpoint")).unwrap()
    }

    /// The complete lines of the metrics.
    fn metrics(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path.join("metrics.jsonl")).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The number of the last record and that of the head, read without the code under test.
    fn records(&self) -> (u64, u64) {
        let last = |name: &str| {
            let text = fs::read_to_string(self.path.join(name)).unwrap();
            let whole = &text[..text.rfind('\n').unwrap()];
            whole.lines().last().unwrap().split(' ').next().unwrap().parse::<u64>().unwrap()
        };
        (last("ledger"), last("ledger.head"))
    }

    /// Reads everything there is and says where the kill fell.
    fn inspect(&mut self) -> Phase {
        let has = |name: &str| self.path.join(name).exists();
        if !has("checkpoint") && !has("checkpoint.previous") {
            // Nothing was trained: no round may have been charged.
            assert!(!fs::read_to_string(self.path.join("ledger")).unwrap_or_default().contains("charge"));
            return Phase::Start;
        }
        let (history, checkpoint) = (self.history(), self.checkpoint());
        assert!(history.spent() >= self.spent && history.spent() <= ROUNDS, "{} rounds are gone", self.spent);
        assert!(checkpoint.round <= history.spent());
        self.spent = history.spent();
        let measured = self.metrics();
        for line in &measured {
            assert!(line["round"].as_u64().unwrap() <= self.spent, "{line} was never charged");
        }
        for name in ["facts.json", "summary.json"].into_iter().filter(|name| has(name)) {
            serde_json::from_str::<Value>(&self.folder.read(&format!("run/{name}"))).expect(name);
        }
        self.folder.read("run/config.toml").parse::<toml::Table>().expect("TOML");
        if has("model.safetensors") {
            let network = Network::new(&zoo::logistic([1, 1, 3], 2)).unwrap();
            let bytes = fs::read(self.path.join("model.safetensors")).unwrap();
            network.from_safetensors(&bytes, str::to_string).expect("a whole model");
        }
        // What a resume adds to the metrics is not a measurement.
        let last = measured.iter().rev().find(|line| line["epoch"].is_number());
        let ahead = last.is_some_and(|line| line["round"].as_u64() > Some(checkpoint.round));
        let records = self.records();
        match records.0 > records.1 {
            true => Phase::Record,
            // After a resume the lines of lost updates stay in the metrics.
            false if ahead && measured.last() == last => Phase::Checkpoint,
            false if has("summary.json") => Phase::Report,
            false if has("model.safetensors") => Phase::Summary,
            false if checkpoint.round == ROUNDS => Phase::Model,
            false => Phase::Round,
        }
    }

    /// Kills the process after `wait` says so, and looks at what is left. None if it came to its end before.
    fn killed(&mut self, wait: impl Fn(&Self) -> bool) -> Option<Phase> {
        let mut child = self.spawn();
        let begun = Instant::now();
        while !wait(self) && child.0.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(300), "the moment does not come");
            sleep(Duration::from_micros(200));
        }
        let (status, error) = child.end();
        assert!(!error.contains("panicked") && !error.contains("error: "), "{error}");
        // A process that ended by itself was not killed.
        status.code().is_none().then(|| self.inspect())
    }

    /// Kills the process where it is about to write `file`; `wait` says that everything before that is done.
    fn held(&mut self, file: &str, wait: impl Fn(&Self) -> bool) -> Phase {
        let fifo = self.path.join(format!("{file}.new"));
        // One that an earlier kill left behind.
        let _ = fs::remove_file(&fifo);
        assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo is installed").success());
        let phase = self.killed(wait).expect("it waits for a reader of the FIFO");
        fs::remove_file(&fifo).unwrap();
        phase
    }
}

fn epochs(run: &Run) -> usize {
    run.metrics().iter().filter(|line| line["epoch"].is_number()).count()
}

#[test]
fn two_hundred_kills_leave_nothing_undercounted_and_nothing_half_written() {
    let mut random = ChaCha8Rng::seed_from_u64(0x6b69_6c6c);
    let mut fell: BTreeMap<Phase, usize> = BTreeMap::new();
    let mut kills = 0;
    'runs: for number in 0..KILLS {
        if kills >= KILLS {
            break;
        }
        let mut run = Run::new(number);
        let mut count = |phase: Phase| {
            *fell.entry(phase).or_default() += 1;
            kills += 1;
        };
        // At random moments, from the start of the process on; an undisturbed run takes a few tenths of a
        // second.
        for _ in 0..24 {
            let delay = Duration::from_micros(random.random_range(0..60_000));
            let moment = Instant::now() + delay;
            match run.killed(|_| Instant::now() >= moment) {
                Some(phase) => count(phase),
                // It was at its end before the moment came: nothing is left to kill.
                None => continue 'runs,
            }
            if run.spent > ROUNDS / 2 {
                break;
            }
        }
        // Make sure that there is something to continue.
        while run.inspect() == Phase::Start {
            run.killed(|run| epochs(run) > 0).map(&mut count);
        }
        // If the last kill has fallen there, the head is what the next process writes first.
        let phase = run.held("ledger.head", |run| run.records().0 > run.records().1);
        assert_eq!(phase, Phase::Record);
        count(phase);
        let before = epochs(&run);
        let phase = run.held("checkpoint", |run| epochs(run) > before);
        assert_eq!(phase, Phase::Checkpoint);
        count(phase);
        let phase = run.held("model.safetensors", |run| run.checkpoint().round == ROUNDS);
        assert_eq!(phase, Phase::Model);
        count(phase);
        let phase = run.held("summary.json", |run| run.path.join("model.safetensors").exists());
        assert_eq!(phase, Phase::Summary);
        count(phase);
        // While it is not at its end, everybody can see what is spent.
        run.folder.text(&["report", "run"]);
        assert!(run.folder.read("run/report.html").contains("has not finished"));
        let phase = run.held("report.html", |run| run.path.join("summary.json").exists());
        assert_eq!(phase, Phase::Report);
        count(phase);
        finished(&run);
    }
    println!("{kills} kills: {fell:?}");
    assert!(kills >= KILLS, "the runs end before they can be killed: {kills}");
    assert!(fell.len() == 7, "a phase was never hit: {fell:?}");
    // Random kills must have come within rounds, not only before or after everything.
    assert!(fell[&Phase::Round] >= 20, "{fell:?}");
}

/// Lets a run reach its end: the guarantee is that of a run that nobody disturbed.
fn finished(run: &Run) {
    let text = run.folder.text(&["resume", "run", "--json", "--quiet"]);
    let summary: Value = serde_json::from_str(&text).unwrap();
    let account = [
        ["account", "--samples", "2000", "--groups", "100", "--rounds", "2000"],
        ["--sigma", "2", "--delta", "1e-5", "--json", "--sampling", run.sampling],
    ];
    let account: Value = serde_json::from_str(&run.folder.text(&account.concat())).unwrap();
    assert_eq!(summary["guarantees"], account["guarantees"]);
    assert_eq!(summary["rounds_charged"], ROUNDS);
    assert!(summary["updates"].as_u64() <= Some(ROUNDS));
    let history = run.history();
    assert!(history.finished() && history.spent() == ROUNDS);
    assert_eq!(summary["resumes"], history.resumes());
    // ε of the whole run, not of the last epoch that was measured before a crash.
    let adversary = &summary["budget"]["adversary"];
    let whole =
        account["guarantees"].as_array().unwrap().iter().find(|given| given["adversary"] == *adversary);
    assert_eq!(summary["budget"]["epsilon"], whole.unwrap()["epsilon"]["upper"]);
    let stored: Value = serde_json::from_str(&run.folder.read("run/summary.json")).unwrap();
    assert_eq!(stored, summary);
    let evaluated: Value = serde_json::from_str(&run.folder.text(&["evaluate", "run", "--json"])).unwrap();
    assert_eq!(evaluated["guarantees"], summary["guarantees"]);
    assert_eq!(evaluated["test_accuracy"], summary["test_accuracy"]);
    run.folder.refused(&["resume", "run"], "finished");
}

/// What broke: killed before its last checkpoint, a run has charged rounds that no line of the metrics tells
/// of any more. Its summary then took the rounds and ε of the last line it had, which were those of an
/// earlier epoch.
#[test]
fn a_run_killed_in_its_last_epoch_counts_all_of_it() {
    let mut run = Run::new(1000);
    let last = |run: &Run| run.metrics().iter().any(|line| line["round"] == ROUNDS);
    // One epoch is measured and saved; the line about it is the last that a resume believes.
    let saved = |run: &Run| Checkpoint::read(&run.path.join("checkpoint")).is_ok_and(|saved| saved.round > 0);
    while run.killed(saved).is_none() {
        fs::remove_dir_all(&run.path).unwrap();
    }
    // Every later one is measured and not saved, up to the last.
    let begun = Instant::now();
    while run.spent < ROUNDS {
        assert!(begun.elapsed() < Duration::from_secs(300));
        let before = epochs(&run);
        assert_eq!(run.held("checkpoint", |run| epochs(run) > before), Phase::Checkpoint);
    }
    assert!(last(&run) && run.checkpoint().round < ROUNDS);
    finished(&run);
}

#[test]
fn a_second_process_is_refused_and_a_dead_one_is_not_in_the_way() {
    let mut run = Run::new(1001);
    while run.killed(|run| epochs(run) > 0).is_none() {}
    let fifo = run.path.join("checkpoint.new");
    let _ = fs::remove_file(&fifo);
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo is installed").success());
    // It holds the directory until it is killed, because nobody reads the FIFO.
    let before = epochs(&run);
    let mut first = run.spawn();
    let begun = Instant::now();
    while epochs(&run) == before {
        assert!(begun.elapsed() < Duration::from_secs(300) && first.0.try_wait().unwrap().is_none());
        sleep(Duration::from_millis(1));
    }
    let ledger = run.folder.read("run/ledger");
    let second = run.folder.run(&["resume", "run"]);
    run.folder.failed(&second, 1, &["run", "another process is using this run"]);
    run.folder.refused(
        &["train", "--config", "people.toml", "--sigma", "2", "--out", "run"],
        "not an empty directory",
    );
    assert_eq!(run.folder.read("run/ledger"), ledger, "nothing was written by those who were refused");
    // Looking is allowed.
    run.folder.text(&["report", "run"]);
    first.end();
    // The lock went with the process; its file stays and means nothing.
    assert!(Path::new(&run.path.join("lock")).exists());
    fs::remove_file(&fifo).unwrap();
    finished(&run);
}
