//! What the shared ledger knows that the directory of a run cannot: older copies, other data, other runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dpsgd::privacy::mechanism::RunConfig;
use dpsgd::settings::RawSettings;
use dpsgd::shared_ledger::{Place, Seen, SharedLedger, total};
use dpsgd::{Job, Observer, PerSample, SavedRun, Settings};

/// A directory for one test, with a shared ledger in it.
struct Bench(PathBuf);

/// Stops when this many rounds are done.
struct StopAt(u64, u64);

impl Observer for StopAt {
    fn round(&mut self, next: u64) {
        self.1 = next;
    }

    fn wants_to_stop(&mut self) -> bool {
        self.1 >= self.0
    }
}

const SAMPLERS: [&str; 4] = [
    "samples = 300\ngroups = 30\n",
    "sampling = 'shuffle'\nsamples = 300\ngroups = 30\n",
    "sampling = 'poisson'\nrate = 0.1\ngroups = 30\n",
    "sampling = 'allocate'\nrounds-per-epoch = 10\ngroups = 30\n",
];

fn model() -> Arc<impl dpsgd::train::Model + use<>> {
    Arc::new(PerSample::new(1, 300, |w: &[f32], i, g: &mut [f32]| {
        g[0] += w[0] - i as f32 % 7.0;
        Ok(0.0)
    }))
}

impl Bench {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("shared-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn place(&self) -> Place {
        Place::At(self.0.join("ledger"))
    }

    fn settings(&self, text: &str) -> Settings {
        let common = "data = 'points'\nnet = 'squares'\nsigma = 2.0\n";
        let raw: RawSettings = toml::from_str(&format!("{common}{text}")).expect("settings");
        let mut settings = raw.resolve().expect("a run");
        if settings.ledger == Place::Usual {
            settings.ledger = self.place();
        }
        settings
    }

    fn job(&self, text: &str) -> Job<impl dpsgd::train::Model + use<>> {
        Job::new(self.settings(text), model(), vec![0.0]).on_data(b"the points")
    }

    fn stopped(&self, text: &str, name: &str, rounds: u64) -> PathBuf {
        let path = self.0.join(name);
        let outcome = self.job(text).start(&path).unwrap().train(&mut StopAt(rounds, 0)).unwrap();
        assert!(!outcome.finished);
        path
    }

    fn copy(&self, from: &Path, name: &str) -> PathBuf {
        let to = self.0.join(name);
        fs::create_dir_all(&to).unwrap();
        for file in fs::read_dir(from).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
        to
    }

    fn charged(&self, path: &Path, text: &str) -> u64 {
        SavedRun::open(path).unwrap().ledger(&self.settings(text)).unwrap().charged
    }
}

/// An older copy of a run directory is refused and found by `verify`; if it is asked to, it counts what the
/// newer copy ran, so that no round happens in both.
#[test]
fn an_older_copy_is_refused_or_charged() {
    for sampler in SAMPLERS {
        let bench = Bench::new(&format!("rollback-{}", SAMPLERS.iter().position(|s| *s == sampler).unwrap()));
        let text = format!("{sampler}rounds = 200\n");
        let run = bench.stopped(&text, "run", 30);
        let old = bench.copy(&run, "old");
        let newer = bench.job(&text).resume(&run).unwrap().train(&mut StopAt(90, 0)).unwrap();
        assert!(!newer.finished);
        let charged = bench.charged(&run, &text);
        assert!(charged >= 90 && bench.charged(&old, &text) < charged, "{charged}");

        let before = fs::read(old.join("ledger")).unwrap();
        let refused = bench.job(&text).resume(&old).map(drop).unwrap_err().to_string();
        assert!(refused.contains("older copy") && refused.contains("--charge-rollback"), "{refused}");
        assert_eq!(fs::read(old.join("ledger")).unwrap(), before, "a refusal changes nothing");
        let seen = |path: &Path| SavedRun::open(path).unwrap().verify_with(&bench.place()).unwrap();
        assert!(matches!(seen(&old).seen, Seen::Older(_)));
        assert!(seen(&old).findings[0].what.contains("older copy"), "{:?}", seen(&old).findings);
        assert!(seen(&run).seen == Seen::Newest && seen(&run).findings.is_empty());

        // The rounds of the newer copy count here as well, and never happen again.
        let mut resumed = bench.job(&text).charging_rollback().resume(&old).unwrap();
        assert_eq!(resumed.trainer().next_round(), charged);
        drop(resumed);
        assert_eq!(bench.charged(&old, &text), charged);
        // Now the other copy is the older one.
        assert!(bench.job(&text).resume(&run).map(drop).unwrap_err().to_string().contains("older copy"));
        let outcome = bench.job(&text).resume(&old).unwrap().train(&mut ()).unwrap();
        assert_eq!(outcome.account, bench.settings(&text).account().unwrap());
        // A copy of a run that was finished elsewhere has nothing left to run.
        let mut last = bench.job(&text).charging_rollback().resume(&run).unwrap();
        assert_eq!(last.trainer().next_round(), 200);
    }
}

/// Two copies of one directory cannot be trained at the same time.
#[test]
fn two_copies_do_not_run_together() {
    let bench = Bench::new("twice");
    let text = format!("{}rounds = 200\n", SAMPLERS[0]);
    let run = bench.stopped(&text, "run", 30);
    let copy = bench.copy(&run, "copy");
    let held = bench.job(&text).resume(&run).unwrap();
    let refused = bench.job(&text).charging_rollback().resume(&copy).map(drop).unwrap_err().to_string();
    assert!(refused.contains("another process trains this run"), "{refused}");
    drop(held);
    assert!(bench.job(&text).charging_rollback().resume(&copy).is_ok());
}

/// A run goes on with the data it was begun with, whatever the sampler; nothing in its directory tells them.
#[test]
fn other_data_are_refused() {
    for (i, sampler) in SAMPLERS.iter().enumerate() {
        let bench = Bench::new(&format!("data-{i}"));
        let text = format!("{sampler}rounds = 200\n");
        let run = bench.stopped(&text, "run", 30);
        let refused = bench.job(&text).on_data(b"the pointz").resume(&run).map(drop).unwrap_err();
        assert!(refused.to_string().contains("the data are not those"), "{refused}");
        let entry = SharedLedger::view(&bench.place()).unwrap().unwrap().entries().unwrap().remove(0);
        let digest = entry.data.expect("a digest");
        for file in fs::read_dir(&run).unwrap() {
            let bytes = fs::read(file.unwrap().path()).unwrap();
            assert!(!bytes.windows(digest.len()).any(|part| part == digest.as_bytes()));
        }
        // Nor by saying nothing about them.
        let silent = Job::new(bench.settings(&text), model(), vec![0.0]).resume(&run).map(drop).unwrap_err();
        assert!(silent.to_string().contains("on known data"), "{silent}");
        // The same data have another digest under the key of another ledger.
        let other = Bench::new(&format!("data-{i}-other"));
        other.stopped(&text, "run", 30);
        let again = SharedLedger::view(&other.place()).unwrap().unwrap().entries().unwrap().remove(0);
        assert_ne!(again.data, Some(digest));
        assert!(bench.job(&text).resume(&run).unwrap().train(&mut ()).unwrap().finished);
    }
}

/// All runs on a data set are added up as one run with all their phases, under the stricter relation.
#[test]
fn runs_on_one_data_set_are_composed() {
    let bench = Bench::new("total");
    let texts = [
        format!("{}rounds = 50\n", SAMPLERS[0]),
        format!("{}rounds = 70\nrelease-mu = [0.1]\n", SAMPLERS[2]),
        format!("{}rounds = 60\n", SAMPLERS[0]),
    ];
    let mut said = String::new();
    for (i, text) in texts.iter().enumerate() {
        let path = bench.0.join(i.to_string());
        said = bench.job(text).start(&path).unwrap().train(&mut ()).unwrap().statement;
    }
    bench
        .job(&format!("{}rounds = 90\ndata-set = 'other'\n", SAMPLERS[0]))
        .start(&bench.0.join("other"))
        .unwrap()
        .train(&mut ())
        .unwrap();
    let entries = SharedLedger::view(&bench.place()).unwrap().unwrap().entries().unwrap();
    assert_eq!(entries.len(), 4);
    let sum = total(entries.iter().filter(|entry| entry.data_set == "points")).unwrap();
    let epsilon = sum.epsilon(1e-5).unwrap().unwrap().0;

    // By hand: 110 rounds of the first sampler and 70 of the second, substituted, with twice the release.
    let [first, second, _] = texts.map(|text| bench.settings(&text).mechanism.config());
    let mut long = first.phases[0];
    long.length = dpsgd::privacy::mechanism::Length::Rounds(110);
    let in_order = |phases: Vec<_>| {
        RunConfig { phases, releases: vec![0.2], ..first.clone() }.check().expect("a run of both")
    };
    let (long, other) = (long, second.phases[0]);
    // Runs that began in the same moment have no order.
    let by_hand = sum.mechanism.clone().expect("a run of all rounds");
    assert!([in_order(vec![long, other]), in_order(vec![other, long])].contains(&by_hand), "{by_hand:?}");
    let budget = bench.settings(&format!("{}rounds = 50\n", SAMPLERS[0])).budget;
    assert_eq!(epsilon, budget.spent(&by_hand, 180).unwrap());
    let joined = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        joined.contains("3 private runs on points") && joined.contains("Together they are ε ≤"),
        "{said}"
    );
    assert!(joined.contains("nobody would notice if this ledger"), "what cannot be known is said: {said}");
}

/// Where the shared ledger cannot be written there is a choice, and the choice is stated.
#[test]
fn without_a_place_for_the_ledger_there_is_a_choice() {
    let bench = Bench::new("choice");
    fs::write(bench.0.join("file"), "").unwrap();
    let path = bench.0.join("run");
    let place = bench.0.join("file/ledger");
    let text = format!("{}rounds = 40\n", SAMPLERS[0]);
    let refused = bench.job(&format!("ledger = '{}'\n{text}", place.display())).start(&path).map(drop);
    let refused = refused.unwrap_err().to_string();
    for part in ["shared ledger cannot be written", "--ledger DIR", "DPSGD_LEDGER", "--ledger none"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    assert!(!path.exists(), "nothing is left behind");
    let without = format!("ledger = 'none'\n{text}");
    let outcome = bench.job(&without).start(&path).unwrap().train(&mut ()).unwrap();
    let said = outcome.statement.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("recorded nowhere but in its own directory"), "{said}");
    assert!(SavedRun::open(&path).unwrap().page().unwrap().contains("nobody would notice"));
    // It can be recorded later, and then counts.
    let run = SavedRun::open(&path).unwrap();
    assert_eq!(run.seen_by(&bench.place()).unwrap(), Seen::NotRecorded);
    let ledger = run.record(&bench.place()).unwrap();
    assert_eq!(ledger.entries().unwrap()[0].charged, 40);
    let verified = run.verify_with(&bench.place()).unwrap();
    assert!(verified.findings.is_empty() && verified.seen == Seen::Newest, "{verified:?}");
}

/// A run that is recorded cannot go on where it would not be.
#[test]
fn a_recorded_run_stays_recorded() {
    let bench = Bench::new("stays");
    let text = format!("{}rounds = 200\n", SAMPLERS[0]);
    let run = bench.stopped(&text, "run", 30);
    let refused = bench.job(&format!("ledger = 'none'\n{text}")).resume(&run).map(drop).unwrap_err();
    assert!(refused.to_string().contains("would hide what it spends"), "{refused}");
    let elsewhere = format!("ledger = '{}'\n{text}", bench.0.join("another").display());
    let refused = bench.job(&elsewhere).resume(&run).map(drop).unwrap_err();
    assert!(refused.to_string().contains("does not know this run"), "{refused}");
    SavedRun::open(&run).unwrap().record(&Place::At(bench.0.join("another"))).unwrap();
    assert!(bench.job(&elsewhere).resume(&run).is_ok());
}

/// A polite stop leaves charged exactly what was run; where an epoch shares one draw, to its end.
#[test]
fn a_polite_stop_charges_what_was_run() {
    for (sampler, expected) in SAMPLERS.iter().zip([137, 140, 137, 140]) {
        let bench = Bench::new("polite");
        let text = format!("{sampler}rounds = 2000\n");
        let path = bench.0.join("run");
        let outcome = bench.job(&text).start(&path).unwrap().train(&mut StopAt(137, 0)).unwrap();
        assert_eq!(bench.charged(&path, &text), expected, "{sampler}");
        let counted = format!("stopped after round 137 of 2000; {expected} rounds are charged, ε ≤ ");
        assert!(outcome.statement.starts_with(&counted), "{}", outcome.statement);
        let settings = bench.settings(&text);
        assert_eq!(outcome.account.mechanism.rounds(), expected);
        let entry = SharedLedger::view(&bench.place()).unwrap().unwrap().entries().unwrap().remove(0);
        assert_eq!(entry.charged, expected);
        // Nothing of it happens again, and nothing that was run is forgotten.
        let mut resumed = bench.job(&text).resume(&path).unwrap();
        assert_eq!(resumed.trainer().next_round(), expected);
        let whole = resumed.train(&mut ()).unwrap();
        assert_eq!(whole.account, settings.account().unwrap());
        assert_eq!(whole.summary["updates"].as_u64().unwrap(), 2000 - (expected - 137));
        assert!(SavedRun::open(&path).unwrap().verify_with(&bench.place()).unwrap().findings.is_empty());
    }
}
