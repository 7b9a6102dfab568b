//! The metrics of a run.
#![no_main]

use dpsgd::run::metrics;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let directory = std::env::temp_dir().join(format!("dpsgd-fuzz-metrics-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    std::fs::write(directory.join("metrics.jsonl"), bytes).expect("a file");
    if let Err(error) = metrics::read(&directory) {
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
});
