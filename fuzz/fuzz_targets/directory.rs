//! A run directory with one file replaced: what opens it refuses in one line, or what it states is no less
//! than what the run spent.
#![no_main]

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use dpsgd::shared_ledger::Place;
use dpsgd::{Job, PerSample, RawSettings, SavedRun};
use libfuzzer_sys::fuzz_target;

const FILES: [&str; 9] = [
    "summary.json",
    "metrics.jsonl",
    "facts.json",
    "config.toml",
    "ledger",
    "ledger.head",
    "checkpoint",
    "report.html",
    "model.safetensors",
];

/// A finished run, the rounds it charged, and the files as they were.
static RUN: LazyLock<(PathBuf, u64, Vec<Option<Vec<u8>>>)> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("dpsgd-fuzz-directory-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    let text = "data = 'points'\nnet = 'squares'\nsamples = 30\ngroups = 30\nsigma = 8.0\nstep = 0.1\nclip = \
                1.0\nrounds = 3\nledger = 'none'\nseed = 1\n";
    let settings = toml::from_str::<RawSettings>(text).expect("settings").resolve().expect("a run");
    let model = PerSample::new(2, 30, |w, i, g| {
        g.iter_mut().zip(w).for_each(|(g, w)| *g += w - i as f32);
        Ok(0.0)
    });
    let job = Job::new(settings, Arc::new(model), vec![0.0; 2]);
    job.start(&path).expect("a directory").train(&mut ()).expect("a run");
    let files = FILES.map(|name| std::fs::read(path.join(name)).ok());
    (path, 3, files.into())
});

fuzz_target!(|bytes: &[u8]| {
    let (path, charged, files) = &*RUN;
    let Some((which, rest)) = bytes.split_first() else { return };
    let which = usize::from(*which) % FILES.len();
    std::fs::write(path.join(FILES[which]), rest).expect("a file");
    let ledger_is_whole = !FILES[which].starts_with("ledger");
    match SavedRun::open(path) {
        Ok(saved) => {
            if let Ok(settings) = saved.settings()
                && let Ok(summary) = saved.ledger(&settings)
            {
                assert!(!ledger_is_whole || summary.charged == *charged);
            }
            let _ = saved.verify_with(&Place::Nowhere);
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    }
    match &files[which] {
        Some(bytes) => std::fs::write(path.join(FILES[which]), bytes).expect("a file"),
        None => std::fs::remove_file(path.join(FILES[which])).expect("a file"),
    }
});
