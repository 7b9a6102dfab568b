//! `dpsgd reproduce`, run as a user runs it: the small version, on real MNIST.

mod folder;

use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use folder::Folder;

/// One small experiment, two epochs.
const ONE: [&str; 8] =
    ["reproduce", "figure1", "--quick", "--data", "mnist", "--only", "mnist-ss-ic-128", "--quiet"];

/// The parts of the small version that train; tables 1 and 2 have tests of their own.
const ACCURACIES: [&str; 9] =
    ["reproduce", "table3", "figure1", "why", "beyond", "--quick", "--data", "mnist", "--quiet"];

fn accuracies(folder: &Folder, out: &str) -> Vec<f64> {
    let outcome: Value =
        serde_json::from_str(&folder.read(&format!("{out}/cells/mnist-ss-ic-128.json"))).expect("JSON");
    let curve = outcome["curve"].as_array().expect("a list");
    curve.iter().map(|point| point["accuracy"].as_f64().expect("a number")).collect()
}

/// P(N(0,1) ≤ x) by Simpson's rule, good to 1e-10 where it is used.
fn normal(x: f64) -> f64 {
    let (steps, low) = (4000, -12.0);
    if x <= low {
        return 0.0;
    }
    let h = (x - low) / f64::from(steps);
    let density = |t: f64| (-0.5 * t * t).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let weight = |i: i32| if i == 0 || i == steps { 1.0 } else { f64::from(2 + 2 * (i % 2)) };
    (0..=steps).map(|i| weight(i) * density(low + h * f64::from(i))).sum::<f64>() * h / 3.0
}

/// ε of A₁ at δ = 1e-5, the slow and obvious way: A₁ sees how often the differing sample was used, k ~
/// Binomial(n, q), and then the run is a Gaussian mechanism with µ = √k/σ.
fn epsilon_a1(n: u64, q: f64, sigma: f64) -> f64 {
    let mut chances = vec![1.0];
    for _ in 0..n {
        let mut next = vec![0.0; chances.len() + 1];
        for (k, chance) in chances.iter().enumerate() {
            next[k] += (1.0 - q) * chance;
            next[k + 1] += q * chance;
        }
        chances = next;
    }
    let delta = |epsilon: f64| -> f64 {
        let of = |(k, chance): (usize, &f64)| {
            if k == 0 || *chance < 1e-14 {
                return 0.0;
            }
            let mu = (k as f64).sqrt() / sigma;
            chance * (normal(0.5 * mu - epsilon / mu) - epsilon.exp() * normal(-0.5 * mu - epsilon / mu))
        };
        chances.iter().enumerate().map(of).sum()
    };
    let (mut low, mut high) = (0.0, 60.0);
    while high - low > 1e-7 {
        let middle = 0.5 * (low + high);
        if delta(middle) > 1e-5 { low = middle } else { high = middle }
    }
    high
}

/// Everything in the small version is there, and the guarantees beside the accuracies are those of the runs.
#[test]
fn the_small_version_is_whole() {
    let folder = Folder::new("reproduce-quick");
    let said = folder.text(&ACCURACIES);
    assert!(said.contains("wrote reproduce-quick"), "{said}");
    let page = folder.read("reproduce-quick/reproduce.html");
    for part in ["http:", "https:", "<script", "src=", "href=", "url(", "@import", "not computed"] {
        assert!(!page.contains(part), "{part}");
    }
    for part in ["Table 3", "Figure 1", "Where the printed accuracies come from", "At equal privacy", "98.41"]
    {
        assert!(page.contains(part), "{part}");
    }
    for panel in ["SS, IC", "SS, BC", "SS, MC", "SH, IC", "SH, BC", "SH, MC"] {
        assert!(page.contains(&format!("MNIST, {panel}")), "{panel}");
    }
    let all: Value = serde_json::from_str(&folder.read("reproduce-quick/reproduce.json")).expect("JSON");
    let rows = all["sections"]["table3"].as_array().expect("a list");
    assert_eq!(rows.len(), 8);
    for row in rows {
        let number = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name} in {row}"));
        assert!((number("accuracy_percent") - number("paper_percent") - number("difference")).abs() < 1e-9);
        if row["clipping"] == "none" {
            assert_eq!((&row["epsilon_a1"], &row["epsilon_a0"]), (&Value::Null, &Value::Null));
            continue;
        }
        let (batch, epochs) = (number("batch") as u64, number("epochs") as u64);
        let rounds = 6000 / batch;
        let share = batch as f64 / 6000.0;
        let exact = match row["sampling"].as_str() {
            Some("SS") => epsilon_a1(rounds * epochs, share, 2.0),
            _ => epsilon_a1(epochs, rounds as f64 * share, 2.0),
        };
        let stated = number("epsilon_a1");
        assert!((stated - exact).abs() < 1e-5 && number("epsilon_a0") <= stated, "{stated} {exact} {row}");
    }
    // A file a table, with the same numbers.
    let csv = folder.read("reproduce-quick/table3.csv");
    assert_eq!(csv.lines().count(), 9);
    for (line, row) in csv.lines().skip(1).zip(rows) {
        let accuracy = line.split(',').nth(9).expect("a column").parse::<f64>().expect("a number");
        assert_eq!(Some(accuracy), row["accuracy_percent"].as_f64());
    }
    // At the same ε ours does better than the paper's settings do.
    let beyond = all["sections"]["beyond"].as_array().expect("a list");
    let accuracy = |i: usize| beyond[i]["accuracy_percent"].as_f64().expect("a number");
    assert!(accuracy(1) > accuracy(0) && beyond[0]["epsilon_a0"].as_f64().expect("a number") <= 3.0);
    // Of the three C of the sweep the two that do best go on.
    let why = all["sections"]["why"].as_array().expect("a list");
    let swept = |epochs: u64| -> Vec<(f64, f64)> {
        let of = |row: &&Value| row["experiment"] == "clip" && row["epochs"] == epochs;
        let number = |value: &Value| value.as_f64().expect("a number");
        why.iter().filter(of).map(|row| (number(&row["accuracy_percent"]), number(&row["clip"]))).collect()
    };
    let (mut short, long) = (swept(2), swept(3));
    assert_eq!((short.len(), long.len()), (3, 2));
    short.sort_by(|a, b| b.0.total_cmp(&a.0));
    assert!(long.iter().all(|(_, clip)| *clip == short[0].1 || *clip == short[1].1), "{short:?} {long:?}");
    // Nothing is computed again, and the page is the same.
    folder.text(&[&ACCURACIES[..], &["--only", "nothing"]].concat());
    assert_eq!(folder.read("reproduce-quick/reproduce.html"), page);
}

/// A run that is extended, or killed and begun again, gives every accuracy of an uninterrupted one.
#[test]
fn an_interruption_changes_nothing() {
    let folder = Folder::new("reproduce-resume");
    let run = |out: &str, epochs: &str| {
        folder.text(&[&ONE[..], &["--out", out, "--figure-epochs", epochs]].concat())
    };
    run("whole", "12");
    run("parts", "3");
    assert_eq!(accuracies(&folder, "parts").len(), 3);
    run("parts", "12");
    let whole = accuracies(&folder, "whole");
    assert_eq!((whole.len(), &accuracies(&folder, "parts")), (12, &whole));
    // Killed at some moments, most of them within the training of the cell.
    for delay in [50, 200, 400, 700, 1000] {
        let arguments = [&ONE[..], &["--out", "killed", "--figure-epochs", "12"]].concat();
        let mut child = folder.command(&arguments).stderr(Stdio::null()).spawn().expect("the command runs");
        thread::sleep(Duration::from_millis(delay));
        let _ = child.kill();
        let _ = child.wait();
    }
    run("killed", "12");
    assert_eq!(accuracies(&folder, "killed"), whole);
    // A damaged file is named, and nothing is overwritten.
    folder.write("killed/cells/mnist-ss-ic-128.json", "{");
    folder.refused(&[&ONE[..], &["--out", "killed"]].concat(), "mnist-ss-ic-128.json");
}

#[test]
fn what_is_wrong_is_refused_before_anything_is_written() {
    let folder = Folder::new("reproduce-hostile");
    let flags: [(&[&str], &str); 8] = [
        (&["table9"], "table9"),
        (&["table3", "--data", "imagenet"], "imagenet"),
        (&["table3", "--data", "cifar10", "--data-dir", "nowhere"], "nowhere"),
        (&["table3", "--figure-epochs", "0"], "figure-epochs"),
        (&["table3", "--table-epochs", "-1"], "-1"),
        (&["table3", "--threads", "0"], "threads"),
        (&["table3", "--seed", "18446744073709551615"], "seed"),
        (&["table3", "--seed", "x"], "seed"),
    ];
    for (arguments, expected) in flags {
        folder.refused(&[&["reproduce"][..], arguments].concat(), expected);
    }
}

/// The page in Debian's chromium: everything is in the document, and the console stays empty.
#[test]
#[ignore = "needs chromium"]
fn a_browser_shows_the_page_without_complaint() {
    let folder = Folder::new("reproduce-browser");
    folder.text(&ACCURACIES);
    let page = folder.path("reproduce-quick/reproduce.html");
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"])
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("chromium is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("CONSOLE"), "{said}");
    let document = String::from_utf8_lossy(&output.stdout);
    assert!(document.contains("At equal privacy") && document.matches("<figure").count() >= 8, "{document}");
}
