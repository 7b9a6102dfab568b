//! Disks that are full and directories that cannot be written: exit code 1, one line, and the run continues
//! when there is room again, with every round counted.
//!
//! What is used for it: `/dev/full`, which answers every write with "no space left"; the limit of the shell
//! on the size of files, which cuts a write short; a small tmpfs and a read-only one in a mount namespace of
//! its own, where the system allows that without privileges (elsewhere that test says so and ends); `/proc`
//! and names that are taken by something else, because permissions mean nothing to root.

#![cfg(target_os = "linux")]

mod folder;

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use serde_json::Value;

use folder::{Folder, TRAIN};

/// The end of the last block in the ledger; a line without its end charges nothing.
fn charged(folder: &Folder) -> u64 {
    let ledger = folder.read("run/ledger");
    let whole = &ledger[..=ledger.rfind('\n').expect("a header")];
    let charges =
        whole.lines().filter_map(|line| line.split(' ').skip_while(|word| *word != "charge").nth(2));
    charges.map(|to| to.parse().expect("a number")).max().unwrap_or(0)
}

fn resumed(folder: &Folder) -> Value {
    let summary: Value =
        serde_json::from_str(&folder.text(&["resume", "run", "--json", "--quiet"])).expect("JSON");
    assert_eq!(summary["rounds_charged"], 400);
    summary
}

#[test]
fn no_space_left_for_any_file_is_one_line_and_loses_nothing() {
    for (sampling, number) in [("subsample", 0), ("shuffle", 1)] {
        let folder = Folder::interrupted(&format!("disk-full-{number}"), sampling);
        let mut spent = charged(&folder);
        for file in ["ledger.head", "checkpoint", "model.safetensors", "summary.json", "report.html"] {
            let fresh = folder.path(&format!("run/{file}.new"));
            let _ = fs::remove_file(&fresh);
            symlink("/dev/full", &fresh).unwrap();
            let output = folder.run(&["resume", "run", "--quiet"]);
            folder.failed(&output, 1, &[&format!("run/{file}"), "No space left on device"]);
            // What people read leaves nothing behind; the ledger and the checkpoint may.
            let kept = fs::remove_file(&fresh).is_ok();
            assert!(!kept || ["ledger.head", "checkpoint"].contains(&file), "{file}.new is left");
            assert!(charged(&folder) >= spent, "{file}");
            spent = charged(&folder);
            folder.text(&["report", "run"]);
        }
        resumed(&folder);
    }
}

/// The limit is inherited with its signal ignored, so that the write that reaches it is cut short and then
/// refused, as on a full disk.
fn limited(folder: &Folder, kilobytes: u32, arguments: &[&str]) -> Output {
    let script = format!("trap '' XFSZ; ulimit -f {kilobytes}; exec \"$0\" \"$@\"");
    let mut command = Command::new("bash");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_dpsgd")]).args(arguments);
    command.current_dir(&folder.0).env("DPSGD_LEDGER", folder.ledger()).output().expect("bash runs")
}

#[test]
fn a_record_that_is_cut_short_charges_nothing_and_the_run_goes_on() {
    let folder = Folder::new("disk-limit");
    folder.table();
    // Two hundred rounds an epoch: the ledger is the first file to reach a kilobyte.
    let output = limited(&folder, 1, &[&TRAIN[..], &["--groups", "10"]].concat());
    let error =
        folder.failed(&output, 1, &["run/ledger", "cannot append", "was not charged and not performed"]);
    let ledger = folder.read("run/ledger");
    assert!(ledger.len() == 1024 && !ledger.ends_with('\n'), "the line is not cut: {error}");
    let spent = charged(&folder);
    assert!(error.contains(&format!("round {spent} ")), "the first round that is not charged: {error}");
    folder.text(&["report", "run"]);
    // Still no room: refused in the same way, and nothing changes.
    let output = limited(&folder, 1, &["resume", "run", "--quiet"]);
    folder.failed(&output, 1, &["run/ledger"]);
    assert!(charged(&folder) >= spent);
    resumed(&folder);
}

#[test]
fn a_run_that_cannot_begin_leaves_nothing() {
    let folder = Folder::new("disk-begin");
    folder.table();
    let before = folder.names();
    // Not even a byte; then the ledger, then the metrics do not fit.
    let alone = [&TRAIN[..], &["--ledger", "none"]].concat();
    folder.failed(&limited(&folder, 0, &alone), 1, &["run/", "File too large"]);
    assert_eq!(folder.names(), before);
    // With a shared ledger it is the first that does not fit.
    folder.failed(&limited(&folder, 0, &TRAIN), 1, &["shared ledger", "File too large"]);
    assert_eq!(folder.names(), before);
    // A directory of the user's stays, as empty as it was.
    fs::create_dir(folder.path("run")).unwrap();
    folder.failed(&limited(&folder, 0, &alone), 1, &["run/", "File too large"]);
    assert_eq!(fs::read_dir(folder.path("run")).unwrap().count(), 0);
    folder.text(&TRAIN);
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let folder = Folder::new("disk-read-only");
    folder.table();
    let train = |out: &str| folder.run(&[&TRAIN[..8], &["--out", out]].concat());
    folder.failed(&train("/proc/run"), 1, &["/proc/run"]);
    folder.failed(&train("/dev/null/run"), 2, &["/dev/null/run", "not an empty directory"]);
    folder.failed(&train("people.csv/run"), 2, &["people.csv/run"]);
    folder.failed(&folder.run(&["curve", "--out", "/proc/curve.svg"]), 1, &["/proc/curve.svg"]);
    // Everything that a run writes, in the way of which something stands.
    let folder = Folder::interrupted("disk-in-the-way", "shuffle");
    for (file, named) in
        [("lock", "run/lock"), ("ledger.head.new", "run/ledger.head"), ("checkpoint.new", "run/checkpoint")]
    {
        let place = folder.path(&format!("run/{file}"));
        let _ = fs::remove_file(&place);
        fs::create_dir(&place).unwrap();
        let before = charged(&folder);
        folder.failed(&folder.run(&["resume", "run", "--quiet"]), 1, &[named, "Is a directory"]);
        fs::remove_dir(&place).unwrap();
        assert!(charged(&folder) >= before);
    }
    resumed(&folder);
}

/// In a mount namespace of its own, which needs no privileges where the system allows it.
#[test]
fn a_small_and_a_read_only_file_system() {
    let folder = Folder::new("disk-tmpfs");
    folder.table();
    fs::create_dir(folder.path("small")).unwrap();
    let within = |script: &str| {
        let mut command = Command::new("unshare");
        command
            .args(["-mr", "bash", "-c", script, env!("CARGO_BIN_EXE_dpsgd")])
            .current_dir(&folder.0)
            .env("DPSGD_LEDGER", folder.ledger())
            .output()
    };
    if !within("mount -t tmpfs -o size=16k tmpfs small").is_ok_and(|output| output.status.success()) {
        println!("no mount namespaces here: nothing was tested");
        return;
    }
    let train =
        "train --config people.toml --rounds 400 --sigma 2 --sampling shuffle --quiet --out small/run";
    // Sizes at which different files are the first that do not fit; then room, then none to write at all.
    for size in [4, 12, 20, 24, 28, 36, 48] {
        let script = format!(
            "set -u; mount -t tmpfs -o size={size}k tmpfs small; \"$0\" {train}; echo \"code $?\" >&2; \
             mount -o remount,size=4m small; if [ -d small/run ]; then \"$0\" report small/run >&2; \
             \"$0\" resume small/run --json --quiet; else \"$0\" {train} --json; fi; echo \"code $?\" >&2; \
             mount -o remount,ro small; \"$0\" report small/run; \"$0\" evaluate small/run >&2"
        );
        let output = within(&script).unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = error.lines().collect();
        assert!(!error.contains("panicked") && lines.len() >= 5, "{size}: {error}");
        assert!(
            lines[0].starts_with("error: small/run")
                || lines[0].contains("not charged and not performed: small/run")
        );
        assert!(lines[0].contains("No space left on device"), "{size}: {error}");
        assert_eq!(lines[1], "code 1", "{size}: {error}");
        assert!(lines.contains(&"code 0"), "{size}: {error}");
        assert!(error.contains("error: small/run/report.html: Read-only file system"), "{size}: {error}");
        assert!(error.contains("against A₁, certified"), "{size}: {error}");
        let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(summary["rounds_charged"], 400, "{size}");
    }
}

/// Where nobody can be told, the run is on the disk all the same.
#[test]
fn a_full_standard_output_is_one_line() {
    let folder = Folder::new("disk-output");
    folder.table();
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let output = folder.command(&["account"]).stdout(full()).output().unwrap();
    folder.failed(&output, 1, &["standard output", "No space left on device"]);
    let arguments = [&TRAIN[..7], &TRAIN[8..], &["--sampling", "shuffle"]].concat();
    let output = folder.command(&arguments).stdout(full()).stderr(full()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    folder.refused(&["resume", "run"], "finished");
    assert!(folder.content("run").iter().all(|(name, _)| !name.ends_with(".new")));
}
