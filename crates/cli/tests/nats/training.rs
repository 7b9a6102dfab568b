//! The commands as people use them: init, serve, join.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::broker::{Broker, free_port, until};

/// A command that does not outlive the test.
pub struct Running(pub Child);

impl Running {
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Ctrl-C.
    pub fn interrupt(&self) {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    }

    pub fn output(mut self) -> Output {
        use std::io::Read;
        let (mut out, mut err) = (Vec::new(), Vec::new());
        self.0.stdout.take().unwrap().read_to_end(&mut out).unwrap();
        self.0.stderr.take().unwrap().read_to_end(&mut err).unwrap();
        let status = self.0.wait().unwrap();
        Output { status, stdout: out, stderr: err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A federation of tables with two classes, one of which each client has a file of.
pub struct Tables {
    pub broker: Broker,
    pub folder: PathBuf,
}

/// Rows that a line separates, others for every seed.
fn table(seed: u64, rows: usize) -> String {
    let mut text = String::from("a,b,class\n");
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut unit = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    for _ in 0..rows {
        let (a, b) = (unit(), unit());
        let class = if a + b > 1.0 { "high" } else { "low" };
        writeln!(text, "{a:.4},{b:.4},{class}").unwrap();
    }
    text
}

const SCHEMA: &str = "[schema.label]\nname = \"class\"\ncategories = [\"low\", \"high\"]\n\
    [[schema.column]]\nname = \"a\"\nrange = [0, 1]\n[[schema.column]]\nname = \"b\"\nrange = [0, 1]\n";

impl Tables {
    pub fn new(clients: u64, rounds: u64, keep_log: bool) -> Self {
        let temporary = TempDir::new().unwrap();
        let folder = temporary.path().to_owned();
        for client in 1..=clients {
            std::fs::write(folder.join(format!("{client}.csv")), table(client, 600)).unwrap();
        }
        std::fs::write(folder.join("public.csv"), table(99, 200)).unwrap();
        std::fs::write(folder.join("schema.toml"), SCHEMA).unwrap();
        let port = free_port();
        let init = Command::new(env!("CARGO_BIN_EXE_dpsgd"))
            .args(["federation", "init", "--out", "fed", "--data", "1.csv", "--test", "public.csv"])
            .args(["--config", "schema.toml", "--net", "logistic", "--groups", "20", "--sigma", "2"])
            .args(["--clip", "1", "--step", "0.5", "--max-staleness", "1000000"])
            .args(["--clients", &clients.to_string(), "--rounds", &rounds.to_string()])
            .args(["--port", &port.to_string()])
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(init.status.success(), "{}", String::from_utf8_lossy(&init.stderr));
        if keep_log {
            let path = folder.join("fed/server.toml");
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(&path, text.replace("keep-log = false", "keep-log = true")).unwrap();
        }
        Self { broker: Broker::over(temporary, port), folder }
    }

    pub fn command(&self, arguments: &[&str]) -> Running {
        let child = Command::new(env!("CARGO_BIN_EXE_dpsgd"))
            .args(arguments)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Running(child)
    }

    pub fn serve(&self, more: &[&str]) -> Running {
        self.command(&[&["serve", "fed/server.toml", "--quiet"], more].concat())
    }

    pub fn join(&self, client: u64) -> Running {
        let (file, data, out) =
            (format!("fed/client-{client}.toml"), format!("{client}.csv"), format!("run-{client}"));
        self.command(&[
            "join",
            &file,
            "--data",
            &data,
            "--test",
            "public.csv",
            "--config",
            "schema.toml",
            "--threads",
            "1",
            "--quiet",
            "--json",
            "--out",
            &out,
        ])
    }
}

fn succeeded(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn verified(folder: &Path, run: &str) {
    let verify =
        Command::new(env!("CARGO_BIN_EXE_dpsgd")).args(["verify", run]).current_dir(folder).output().unwrap();
    assert!(verify.status.success(), "{}", String::from_utf8_lossy(&verify.stderr));
}

pub fn three_clients_train_and_finish() {
    let tables = Tables::new(3, 60, false);
    let serve = tables.serve(&["--stop-when-idle", "10", "--json"]);
    let clients: Vec<Running> = (1..=3).map(|client| tables.join(client)).collect();
    for (client, running) in (1..=3).zip(clients) {
        let told = succeeded(&running.output());
        let epsilon = told["guarantees"][0]["epsilon"]["upper"].as_f64();
        assert!(epsilon.is_some_and(|epsilon| epsilon > 0.0), "client {client} states ε: {told}");
        verified(&tables.folder, &format!("run-{client}"));
        let standing = &told["federation"];
        assert_eq!((&standing["client"], &standing["round"]), (&client.into(), &60.into()), "{standing}");
        assert_eq!(standing["ended"], true, "{standing}");
        let left = std::fs::read_dir(tables.folder.join(format!("run-{client}/outbox"))).unwrap().count();
        assert_eq!(left, 0, "everything was acknowledged");
    }
    let told = succeeded(&serve.output());
    assert_eq!(told["global"]["updates_applied"], 180, "{told}");
    assert_eq!(told["global"]["version"], 180, "{told}");
    assert_eq!(told["global"]["updates_rejected"], serde_json::json!({}), "{told}");
    let chronicle = tables.folder.join("fed/coordinator");
    let report = std::fs::read_to_string(chronicle.join("report.html")).unwrap();
    for part in ["Test accuracy", "Updates folded", "Share of each client", "180 updates folded of 3 clients"]
    {
        assert!(report.contains(part), "{part} is missing in the report");
    }
    let status: Value =
        serde_json::from_slice(&std::fs::read(chronicle.join("status.json")).unwrap()).unwrap();
    assert_eq!((&status["ended"], &status["updates_applied"]), (&true.into(), &180.into()), "{status}");
    // Far above the half that guessing gives; the noise of 180 steps leaves room for luck.
    let accuracy = told["global"]["test_accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.7, "{told}");
}

pub fn a_late_client_starts_from_the_newest_model() {
    let tables = Tables::new(2, 40, false);
    let late = tables.join(2);
    std::thread::sleep(Duration::from_millis(500));
    assert!(!tables.folder.join("run-2/ledger").exists(), "without a model nothing is charged");
    let serve = tables.serve(&["--stop-when-idle", "10", "--json"]);
    succeeded(&tables.join(1).output());
    succeeded(&late.output());
    // The ledger says that the first run is complete, so joining again changes nothing.
    let again = tables.join(1).output();
    assert!(!again.status.success());
    let told = succeeded(&serve.output());
    assert_eq!(told["global"]["updates_applied"], 80, "{told}");
    until("the model is written", || tables.folder.join("fed/global.model").exists());
}
