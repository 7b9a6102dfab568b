//! Sweeps: resumed, in parallel, added up; and the best of a secret number of tries.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use dpsgd::compare::Comparison;
use dpsgd::sweep::select::Law;
use dpsgd::sweep::{Row, Sweep, Vary, Watch};
use dpsgd::{RawSettings, SavedRun};

/// A table that is learned in a moment.
fn base(directory: &Path) -> RawSettings {
    let rows = |first: usize, count: usize| {
        let line = |i: usize| {
            let (a, b) = ((i * 37 % 101) as f64 / 100.0, (i * 53 % 97) as f64 / 96.0);
            format!("{a},{b},{}\n", if a + b > 1.0 { "yes" } else { "no" })
        };
        "a,b,ill\n".to_string() + &(first..first + count).map(line).collect::<String>()
    };
    let file = |name: &str, text: String| -> PathBuf {
        let path = directory.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let data = file("train.csv", rows(0, 2000));
    let test = file("test.csv", rows(5000, 300));
    let schema = "[label]\nname = \"ill\"\ncategories = [\"no\", \"yes\"]\n\
                  [[column]]\nname = \"a\"\nrange = [0, 1.5]\n[[column]]\nname = \"b\"\nrange = [0, 1.5]\n";
    RawSettings {
        data: Some(data.display().to_string()),
        test: Some(test),
        schema: Some(toml::from_str(schema).unwrap()),
        sigma: Some(3.0),
        epochs: Some(2),
        groups: Some(200),
        threads: Some(1),
        ledger: Some(directory.join("ledger")),
        data_set: Some("patients".into()),
        ..RawSettings::default()
    }
}

fn sweep(directory: &Path, vary: &[&str], seeds: Option<u64>) -> Sweep {
    Sweep {
        base: base(directory),
        vary: vary.iter().map(|text| Vary::parse(text).unwrap()).collect(),
        seeds,
        out: directory.join("sweep"),
        jobs: 1,
    }
}

/// Notes what it is told, and stops when this number of runs has begun.
#[derive(Default)]
struct Noted {
    begun: Mutex<Vec<String>>,
    ended: AtomicUsize,
    warned: AtomicUsize,
    most: Option<usize>,
}

impl Watch for Noted {
    fn begins(&self, run: &str, _: usize, _: usize) {
        self.begun.lock().unwrap().push(run.to_string());
    }

    fn ended(&self, _: &Row) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    fn warns(&self, _: &str) {
        self.warned.fetch_add(1, Ordering::Relaxed);
    }

    fn wants_to_stop(&self) -> bool {
        self.most.is_some_and(|most| self.begun.lock().unwrap().len() >= most)
    }
}

#[test]
fn a_stopped_sweep_goes_on_and_states_the_sum() {
    let directory = tempfile::tempdir().unwrap();
    let sweep = sweep(directory.path(), &["step=0.1,0.2", "clip=1,4"], None);
    let stopped = Noted { most: Some(2), ..Noted::default() };
    let first = sweep.run(&stopped).unwrap();
    assert!(first.rows.len() < 4 && first.planned == 4, "{}", first.statement());
    // What was stopped has been looked at: it is in the sum.
    assert!(first.together.contains("2 private runs on patients: "), "{}", first.together);
    // The second run was stopped after a round and is resumed, not begun again.
    let swept = Sweep { jobs: 2, ..sweep.clone() }.run(&Noted::default()).unwrap();
    assert_eq!(swept.rows.len(), 4);
    assert_eq!(swept.csv().lines().count(), 5);
    assert!(swept.csv().starts_with("step,clip,test_accuracy,"), "{}", swept.csv());
    assert!(fs::read_to_string(sweep.out.join("sweep.html")).unwrap().contains("Test accuracy"));

    // The sum is the composition of four times the same rounds.
    let runs: Vec<SavedRun> = swept.rows.iter().map(|row| SavedRun::open(&row.directory).unwrap()).collect();
    let settings = runs[0].settings().unwrap();
    let mut config = settings.mechanism.config();
    config.phases = vec![config.phases[0]; 4];
    config.releases = config.releases.repeat(4);
    let together = config.check().unwrap();
    let epsilon = settings.budget.spent(&together, together.rounds()).unwrap();
    let said = dpsgd::report::rounding::up(epsilon, 4);
    assert!(swept.together.contains("4 private runs on patients: "), "{}", swept.together);
    assert!(swept.together.contains(&format!("ε ≤ {said} at")), "{said}: {}", swept.together);

    // Once more: nothing is trained, and everything is as it was.
    let nothing = Noted::default();
    let again = sweep.run(&nothing).unwrap();
    assert_eq!(again.csv(), swept.csv());
    // Another sweep in the same place is refused.
    let other = Sweep { seeds: Some(2), ..sweep.clone() };
    assert!(other.run(&()).unwrap_err().to_string().contains("another sweep"));

    let found = Comparison::of(&runs).unwrap();
    let names: Vec<&str> = found.differing.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["clip", "step"]);
    assert!(found.statement(300).contains("test accuracy") && found.statement(40).contains("guarantee"));
    assert!(found.html().contains("Privacy spent"));
    assert!(Comparison::of(&runs[..1]).is_err());
}

#[test]
fn seeds_repeat_and_are_not_private() {
    let directory = tempfile::tempdir().unwrap();
    let first = sweep(directory.path(), &["step=0.1"], Some(2)).run(&()).unwrap();
    let elsewhere =
        Sweep { out: directory.path().join("again"), ..sweep(directory.path(), &["step=0.1"], Some(2)) };
    let second = elsewhere.run(&()).unwrap();
    for (a, b) in first.rows.iter().zip(&second.rows) {
        assert_eq!(a.last().unwrap().test_loss, b.last().unwrap().test_loss);
    }
    assert_ne!(first.rows[0].last().unwrap().test_loss, first.rows[1].last().unwrap().test_loss);
    assert!(first.together.contains("No run on patients is private"), "{}", first.together);
}

/// Everything below a directory.
fn below(directory: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        names.push(path.strip_prefix(directory).unwrap().display().to_string());
    }
    names.sort();
    names
}

#[test]
fn only_the_best_of_a_secret_number_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let sweep = sweep(directory.path(), &["step=0.0001,0.2"], None);
    // A test row that occurs in training: something to warn of.
    let mut test = fs::read_to_string(directory.path().join("test.csv")).unwrap();
    test.push_str("0,0,no\n");
    fs::write(directory.path().join("test.csv"), test).unwrap();
    let told = Noted::default();
    let chosen = sweep.select(Law::Geometric, 3.0, &told).unwrap();
    assert!(chosen.finished);
    assert_eq!(below(&sweep.out), ["best", "selection.json", "sweep.toml"], "nothing else is left");
    assert!(
        told.begun.lock().unwrap().is_empty() && told.ended.load(Ordering::Relaxed) == 0,
        "nothing is told"
    );
    assert_eq!(told.warned.load(Ordering::Relaxed), 2, "once for each point of the grid, whatever the tries");
    let run = SavedRun::open(&chosen.directory.unwrap()).unwrap();
    // Which try it was would be a lower bound on their number.
    for entry in fs::read_dir(run.path()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        assert!(!bytes.windows(6).any(|six| six == b"/tries"), "{}", path.display());
    }
    // The run says that another ε covers it, and verifies with that.
    let (settings, facts) = (run.settings().unwrap(), run.facts().unwrap());
    // When the best try began says how many there were before it.
    assert_eq!(facts.begun, None);
    let note = facts.note(&settings).unwrap();
    assert!(note.contains("the chosen one of several tries: ε ≤"), "{note}");
    assert!(run.verify().unwrap().findings.is_empty());
    let alone = run.account().unwrap().against(settings.budget.adversary).unwrap().answer.upper;
    let epsilon = chosen.json["epsilon"].as_f64().unwrap();
    assert!(epsilon > alone, "{epsilon} covers the choice, {alone} does not");
    assert!(chosen.json.get("tries").is_none());
    // Its own curve does not cover the choice, so no sum is stated with it.
    let compared = Comparison::of(&[run.clone(), run.clone()]).unwrap();
    assert!(compared.together.contains("chosen privately"), "{}", compared.together);
    assert!(!compared.together.contains('ε'), "{}", compared.together);
    // The shared ledger has counted every try, deleted or not.
    let ledger =
        dpsgd::SharedLedger::view(&dpsgd::shared_ledger::Place::said(&directory.path().join("ledger")));
    assert!(!ledger.unwrap().unwrap().entries().unwrap().is_empty());
    // Once more: the same result, nothing trained.
    let before = fs::read(sweep.out.join("best/model.safetensors")).unwrap();
    assert!(sweep.select(Law::Geometric, 3.0, &()).unwrap().finished);
    assert_eq!(fs::read(sweep.out.join("best/model.safetensors")).unwrap(), before);
}

/// Interrupted over and over: K and the settings are drawn once.
#[test]
fn an_interrupted_selection_keeps_its_draw() {
    struct Impatient(AtomicUsize);
    impl Watch for Impatient {
        fn wants_to_stop(&self) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed) >= 7
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let sweep = sweep(directory.path(), &["step=0.1,0.2,0.3"], None);
    let secret = sweep.out.join("tries/secret.json");
    let drawn = |path: &Path| -> Option<serde_json::Value> {
        let text = fs::read_to_string(path).ok()?;
        Some(serde_json::from_str::<serde_json::Value>(&text).unwrap()["tries"].clone())
    };
    let mut known = None;
    for _ in 0..500 {
        let chosen = sweep.select(Law::Logarithmic, 2.0, &Impatient(AtomicUsize::new(0))).unwrap();
        if chosen.finished {
            assert!(!secret.exists() && sweep.out.join("best").is_dir());
            return;
        }
        let now = drawn(&secret);
        assert!(now.is_some() && (known.is_none() || known == now), "{known:?} {now:?}");
        known = now;
    }
    panic!("it never ends");
}

#[test]
fn what_would_not_be_private_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let good = sweep(directory.path(), &["step=0.1,0.2"], None);
    let refused = |sweep: Sweep| sweep.select(Law::Poisson, 5.0, &()).unwrap_err().to_string();
    assert!(refused(Sweep { seeds: Some(1), ..good.clone() }).contains("seed"));
    assert!(refused(Sweep { jobs: 2, ..good.clone() }).contains("jobs"));
    let base = RawSettings { test: None, ..good.base.clone() };
    assert!(refused(Sweep { base, ..good.clone() }).contains("public test set"));
    let vary = vec![Vary::parse("delta=1e-5,1e-6").unwrap()];
    assert!(refused(Sweep { vary, ..good.clone() }).contains("delta"));
    assert!(good.select(Law::Poisson, 0.0, &()).unwrap_err().to_string().contains("tries"));
    assert!(!good.out.exists(), "nothing is written before everything is checked");
}
