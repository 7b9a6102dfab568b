//! Files that a disk or a hand has damaged, given to the command: exit code 2 and one line that names the
//! file, nothing written; or, where the damage makes other data that are as valid, an answer about those,
//! with the same guarantee.
//!
//! | file | what a changed bit is |
//! |---|---|
//! | `ledger`, `ledger.head`, `config.toml`, `checkpoint`, `facts.json` | always noticed: digests |
//! | the files of the known data sets | always noticed: published SHA-256 |
//! | `metrics.jsonl` | noticed, or another measurement; no guarantee rests on them |
//! | `model.safetensors` | noticed, or another weight; whatever is made of a released model is covered |
//! | a user's own table | noticed, or another row; one more row or one fewer is another run |
//! | the cells of `reproduce` | noticed, or another number; they are public and can be computed again |

mod folder;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use folder::{Folder, TRAIN};

/// The number of shortened copies, and of copies with one changed bit, spread over the file.
fn damages(bytes: &[u8], lengths: usize, bits: usize) -> Vec<(String, Vec<u8>)> {
    let mut random = ChaCha8Rng::seed_from_u64(0x00d3_a6ed);
    let spread = |count: usize| (0..count).map(move |i| i * bytes.len() / count);
    let cut = |length: usize| (format!("{length} bytes"), bytes[..length].to_vec());
    let mut all: Vec<_> = spread(lengths.min(bytes.len())).map(cut).collect();
    for at in spread(bits.min(bytes.len())) {
        let (mut changed, bit) = (bytes.to_vec(), random.random_range(0..8));
        changed[at] ^= 1 << bit;
        all.push((format!("byte {at}, bit {bit}"), changed));
    }
    all
}

/// Runs the command with every damaged copy of a file of the run. A refusal names one of `named` and leaves
/// everything as it was; what is not refused is handed to `accepted`. How many were refused.
fn with_damaged(
    folder: &Folder,
    (file, lengths, bits): (&str, usize, usize),
    arguments: &[&str],
    named: &[&str],
    accepted: impl Fn(&str, Output),
) -> usize {
    let path = folder.path(file);
    let whole = fs::read(&path).unwrap();
    let mut refused = 0;
    for (what, bytes) in damages(&whole, lengths, bits) {
        fs::write(&path, &bytes).unwrap();
        let before = folder.content("run");
        let output = folder.run(arguments);
        let error = String::from_utf8(output.stderr.clone()).unwrap();
        let what = format!("{file}, {what}, {arguments:?}: {error}");
        assert!(!error.contains("panicked"), "{what}");
        if output.status.success() {
            accepted(&what, output);
        } else {
            // The experiments of `reproduce` count a file that is not text as a fault of the machine.
            let cell = file.contains("cells") && error.contains("valid UTF-8");
            assert_eq!(output.status.code(), Some(if cell { 1 } else { 2 }), "{what}");
            assert!(error.starts_with("error: ") && error.lines().count() == 1, "{what}");
            assert!(named.iter().any(|name| error.contains(name)), "{what}");
            assert!(output.stdout.is_empty() && folder.content("run") == before, "{what}");
            refused += 1;
        }
    }
    fs::write(&path, whole).unwrap();
    refused
}

fn never(what: &str, _: Output) {
    panic!("not noticed: {what}");
}

#[test]
fn what_is_spent_is_believed_whole_or_not_at_all() {
    let folder = Folder::interrupted("damaged-spent", "subsample");
    for command in ["report", "evaluate", "resume"] {
        let arguments = [command, "run"];
        // The ledger's own tests go through every bit and every length.
        with_damaged(&folder, ("run/ledger", 10, 30), &arguments, &["run/ledger"], never);
        with_damaged(&folder, ("run/ledger.head", 10, 20), &arguments, &["run/ledger"], never);
    }
    for command in ["report", "resume"] {
        let bits = if command == "report" { 250 } else { 30 };
        with_damaged(&folder, ("run/config.toml", 30, bits), &[command, "run"], &["run/config.toml"], never);
    }
    with_damaged(&folder, ("run/facts.json", 30, 230), &["report", "run"], &["run/facts.json"], never);
    with_damaged(&folder, ("run/checkpoint", 25, 60), &["resume", "run"], &["run/checkpoint"], never);
    // Whole again, the run continues.
    let text = folder.text(&["resume", "run", "--json", "--quiet"]);
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["rounds_charged"], 400);
}

/// What broke: a line that could not be read was noticed only when the report was written, after everything
/// was spent, and then the run could not be finished any more.
#[test]
fn damaged_metrics_are_refused_before_anything_is_spent() {
    let folder = Folder::interrupted("damaged-metrics", "shuffle");
    let whole = folder.content("run");
    // The shared ledger goes back as well: it would refuse an older copy of the run.
    let saved = folder.path("saved-ledger");
    let copy = |from: &Path, to: &Path| {
        let _ = fs::remove_dir_all(to);
        assert!(Command::new("cp").arg("-r").args([from, to]).status().unwrap().success());
    };
    copy(folder.ledger().as_ref(), &saved);
    let restore = || {
        copy(&saved, folder.ledger().as_ref());
        fs::remove_dir_all(folder.path("run")).unwrap();
        fs::create_dir(folder.path("run")).unwrap();
        whole.iter().for_each(|(name, bytes)| fs::write(folder.path("run").join(name), bytes).unwrap());
    };
    // Cut in the middle of a line is what a crash leaves. A changed digit is another measurement, unless it
    // speaks of a round that was never charged: then it is the ledger that may be short.
    let finished = |what: &str, output: Output| {
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(summary["rounds_charged"], 400, "{what}");
        restore();
    };
    let arguments = ["resume", "run", "--json", "--quiet"];
    let refused =
        with_damaged(&folder, ("run/metrics.jsonl", 5, 60), &arguments, &["metrics.jsonl"], finished);
    assert!(refused > 20, "{refused}");
    restore();
    folder.text(&["resume", "run", "--quiet"]);
    let guarantees = |output: &Output| {
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        value["guarantees"].clone()
    };
    let right = guarantees(&folder.run(&["evaluate", "run", "--json"]));
    let same = |what: &str, output: Output| assert_eq!(guarantees(&output), right, "{what}");
    let evaluate = ["evaluate", "run", "--json"];
    with_damaged(&folder, ("run/metrics.jsonl", 5, 30), &evaluate, &["metrics.jsonl"], same);
    let refused =
        with_damaged(&folder, ("run/model.safetensors", 25, 100), &evaluate, &["model.safetensors"], same);
    assert!(refused > 40, "{refused}");
    // The report draws whatever numbers there are.
    let drawn = |_: &str, output: Output| assert!(output.status.success());
    with_damaged(&folder, ("run/metrics.jsonl", 0, 10), &["report", "run"], &["metrics.jsonl"], drawn);
}

#[test]
fn a_damaged_table_is_refused_or_another_table() {
    let folder = Folder::new("damaged-table");
    folder.table();
    folder.text(&[&TRAIN[..], &["--sampling", "shuffle"]].concat());
    let right: Value = serde_json::from_str(&folder.text(&["evaluate", "run", "--json"])).unwrap();
    let same = |what: &str, output: Output| {
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(value["guarantees"], right["guarantees"], "{what}");
    };
    let evaluate = ["evaluate", "run", "--json"];
    // Measuring needs no training file, whatever is in it.
    let refused = with_damaged(&folder, ("people.csv", 5, 15), &evaluate, &[], same);
    assert_eq!(refused, 0);
    // A shorter public file is another test set, if it ends with a row.
    let refused = with_damaged(&folder, ("public.csv", 15, 50), &evaluate, &["public.csv"], same);
    assert!(refused > 25, "{refused}");
    // The settings of a run that has not begun: a changed number or name is another setting, refused by its
    // name if by anything. (The data are named beside it, because a file that lost everything asks for the
    // default run.)
    let train = [&TRAIN[..8], &["--sampling", "shuffle", "--out", "other", "--data", "people.csv"]].concat();
    let begun = |what: &str, _: Output| fs::remove_dir_all(folder.path("other")).expect(what);
    let refused = with_damaged(&folder, ("people.toml", 15, 60), &train, &[""], begun);
    assert!(refused > 45, "{refused}");
    folder.write("net.toml", "input = [1, 1, 3]\n[[layer]]\nkind = \"linear\"\nfeatures = 2\nbias = true\n");
    let train = [&train[..], &["--net", "net.toml"]].concat();
    let refused = with_damaged(&folder, ("net.toml", 10, 40), &train, &["net.toml", "net:"], begun);
    assert!(refused > 25, "{refused}");
}

/// Every file of a published data set has a published checksum.
#[test]
fn damaged_known_data_are_refused() {
    let folder = Folder::new("damaged-known");
    let whole = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/mnist");
    let names = ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz"];
    fs::create_dir(folder.path("mnist")).unwrap();
    for name in names {
        fs::copy(whole.join(name), folder.path("mnist").join(name)).unwrap();
    }
    let refused = || folder.refused(&["train", "--data-dir", "mnist"], "t10k-labels-idx1-ubyte");
    refused();
    let labels = fs::read(whole.join("t10k-labels-idx1-ubyte.gz")).unwrap();
    let mut bytes = vec![labels[..labels.len() / 2].to_vec(), b"".to_vec(), b"not an IDX file".to_vec()];
    // After the header of gzip, which says when and where; in the middle; in its checksum.
    for at in [10, labels.len() / 2, labels.len() - 5] {
        let mut changed = labels.clone();
        changed[at] ^= 4;
        bytes.push(changed);
    }
    for bytes in bytes {
        fs::write(folder.path("mnist/t10k-labels-idx1-ubyte.gz"), bytes).unwrap();
        refused();
    }
    fs::remove_file(folder.path("mnist/t10k-labels-idx1-ubyte.gz")).unwrap();
    // Unzipped, nothing but our own checksum can notice another label.
    let plain = [&[0, 0, 8, 1, 0, 0, 0x27, 0x10][..], &vec![7; 10_000]].concat();
    fs::write(folder.path("mnist/t10k-labels-idx1-ubyte"), plain).unwrap();
    folder.refused(&["train", "--data-dir", "mnist"], "SHA-256");
    // CIFAR-10: short, long, of the right length, with a label that is none.
    fs::create_dir(folder.path("cifar10")).unwrap();
    for number in 1..=5 {
        let file = fs::File::create(folder.path(&format!("cifar10/data_batch_{number}.bin"))).unwrap();
        file.set_len(30_730_000).unwrap();
    }
    fs::write(folder.path("cifar10/test_batch.bin"), "").unwrap();
    let train = ["train", "--data", "cifar10", "--data-dir", "cifar10"];
    folder.refused(&train, "data_batch_1.bin: SHA-256");
    let first = fs::File::options().write(true).open(folder.path("cifar10/data_batch_1.bin")).unwrap();
    for (length, says) in [(30_729_999, "truncated"), (30_730_001, "more than the"), (0, "truncated")] {
        first.set_len(length).unwrap();
        folder.refused(&train, &format!("data_batch_1.bin: {says}"));
    }
}

#[test]
fn damaged_cells_are_refused_or_other_numbers() {
    let folder = Folder::new("damaged-cells");
    let one = ["reproduce", "figure1", "--quick", "--data", "mnist", "--quiet", "--out", "run", "--only"];
    folder.text(&[&one[..], &["mnist-ss-ic-128"]].concat());
    let file = "run/cells/mnist-ss-ic-128.json";
    let shown = |what: &str, output: Output| assert!(output.status.success(), "{what}");
    // Nothing is computed: the page is made of what is there.
    let page = [&one[..], &["nothing"]].concat();
    let refused = with_damaged(&folder, (file, 5, 15), &page, &["mnist-ss-ic-128.json"], shown);
    assert!(refused >= 6, "{refused}");
}
