//! The examples run to their end; `cargo test` has built them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn example(name: &str) -> PathBuf {
    // target/PROFILE/deps/THIS → target/PROFILE/examples/NAME
    let this = std::env::current_exe().expect("a path");
    let profile = this.parent().and_then(Path::parent).expect("a profile");
    let path = profile.join("examples").join(name);
    assert!(path.is_file(), "{}: build it with cargo build --release --examples", path.display());
    path
}

fn run(name: &str, directory: Option<&Path>) -> Output {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data");
    let mut command = Command::new(example(name));
    let ledger = concat!(env!("CARGO_TARGET_TMPDIR"), "/examples-ledger");
    command.args(directory).env("DPSGD_DATA", data).env("DPSGD_LEDGER", ledger);
    let output = command.output().expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{name}: {error}");
    output
}

fn fresh(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    path
}

#[test]
fn residual_trains_with_ledger_and_report() {
    let directory = fresh("residual");
    let text = String::from_utf8(run("residual", Some(&directory)).stdout).expect("UTF-8");
    let accuracy = text.split("test accuracy ").nth(1).and_then(|rest| rest.split(' ').next());
    let accuracy: f64 = accuracy.and_then(|number| number.parse().ok()).expect("an accuracy");
    assert!(accuracy > 70.0, "{text}");
    let run = dpsgd::SavedRun::open(&directory).expect("a run");
    assert!(run.verify().expect("verified").findings.is_empty());
    let page = std::fs::read_to_string(directory.join("report.html")).expect("a page");
    assert!(page.contains("extragradient"));
}

#[test]
fn an_algorithm_of_ones_own_is_audited_and_trained() {
    run("inner", Some(&fresh("inner")));
}

#[test]
fn accounting_only() {
    run("account", None);
}

#[test]
fn a_stopped_run_is_continued() {
    run("resume", Some(&fresh("resume")));
}
