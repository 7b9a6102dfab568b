//! A directory of its own for every test, and the command run in it.

#![allow(dead_code, reason = "every file of tests uses a part of it")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// 400 rounds on the small table of [`Folder::table`], twenty an epoch, in the directory `run`.
pub const TRAIN: [&str; 10] =
    ["train", "--config", "people.toml", "--rounds", "400", "--sigma", "2", "--quiet", "--out", "run"];

pub struct Folder(pub PathBuf);

impl Folder {
    /// An empty one; what an earlier run of the test left is removed.
    pub fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a writable directory");
        let folder = Self(path);
        let _ = fs::remove_dir_all(folder.ledger());
        folder
    }

    /// The shared ledger of its runs, beside it.
    pub fn ledger(&self) -> PathBuf {
        self.0.with_extension("ledger")
    }

    /// What is in it, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("a directory");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dpsgd"));
        command.current_dir(&self.0).args(arguments).env("DPSGD_LEDGER", self.ledger());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the command runs")
    }

    pub fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// Exit code 2, one line on standard error (or the parser's own layout) that mentions `expected`, and nothing written.
    pub fn refused(&self, arguments: &[&str], expected: &str) {
        let before = self.names();
        let output = self.run(arguments);
        let error = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        let usage = error.contains("\nFor more information, try '--help'.");
        assert!(usage || error.lines().count() == 1, "{arguments:?}: {error}");
        assert!(error.starts_with("error: ") && error.contains(expected), "{arguments:?}: {error}");
        assert_eq!(self.names(), before, "{arguments:?} left something behind");
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a writable file");
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect(name)
    }

    /// Two classes that a line divides, in two files of 2000 and 200 rows that share none, and the settings of a
    /// short run on them: 20 rounds an epoch, 3 epochs.
    pub fn table(&self) -> &'static str {
        let rows = |count: usize, more: &str| {
            let row = |i: usize| {
                let (age, job) = (i * 37 % 100, ["nurse", "smith"][i % 2]);
                format!("{age}{more},{job},{}\n", if age >= 50 { "high" } else { "low" })
            };
            format!("age,job,income\n{}", (0..count).map(row).collect::<String>())
        };
        self.write("people.csv", &rows(2000, ""));
        self.write("public.csv", &rows(200, ".5"));
        self.write(
            "people.toml",
            "data = \"people.csv\"\ntest = \"public.csv\"\nnet = \"logistic\"\ngroups = 100\nepochs = 3\n\
             [schema.label]\nname = \"income\"\ncategories = [\"low\", \"high\"]\n\
             [[schema.column]]\nname = \"age\"\nrange = [0, 100]\n\
             [[schema.column]]\nname = \"job\"\ncategories = [\"nurse\", \"smith\"]\n",
        );
        "people.toml"
    }

    /// One line on standard error that mentions every part, exit code 1 or 2, no panic; the line.
    pub fn failed(&self, output: &Output, code: i32, parts: &[&str]) -> String {
        let error = String::from_utf8(output.stderr.clone()).expect("UTF-8");
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert!(error.starts_with("error: ") && error.lines().count() == 1, "{error}");
        assert!(!error.contains("panicked"), "{error}");
        for part in parts {
            assert!(error.contains(part), "{part} in {error}");
        }
        error
    }

    /// A run by [`TRAIN`] that was killed after a few epochs, its last record acknowledged.
    pub fn interrupted(name: &str, sampling: &str) -> Self {
        Self::interrupted_with(name, sampling, |_| {})
    }

    /// The same with settings that `change` has written.
    pub fn interrupted_with(name: &str, sampling: &str, change: impl Fn(&Self)) -> Self {
        let folder = Self::new(name);
        folder.table();
        change(&folder);
        let number =
            |text: String| text.lines().last().and_then(|line| Some(line.split_once(' ')?.0.to_string()));
        loop {
            let arguments = [&TRAIN[..], &["--sampling", sampling]].concat();
            let mut child = folder.command(&arguments).stdout(Stdio::null()).spawn().expect("it starts");
            let metrics = folder.path("run/metrics.jsonl");
            let begun = Instant::now();
            while fs::metadata(&metrics).map_or(0, |file| file.len()) < 600
                && child.try_wait().expect("a child").is_none()
            {
                assert!(begun.elapsed() < Duration::from_secs(300), "no epoch in five minutes");
                sleep(Duration::from_micros(200));
            }
            child.kill().expect("a child");
            child.wait().expect("a child");
            let whole = !folder.path("run/checkpoint.new").exists() && folder.path("run/checkpoint").exists();
            if !folder.path("run/summary.json").exists()
                && whole
                && number(folder.read("run/ledger")) == number(folder.read("run/ledger.head"))
            {
                return folder;
            }
            fs::remove_dir_all(folder.path("run")).expect("a directory");
            // It would be counted, as it should.
            let _ = fs::remove_dir_all(folder.ledger());
        }
    }

    /// The files in a directory and what is in them.
    pub fn content(&self, name: &str) -> BTreeMap<String, Vec<u8>> {
        let entries =
            fs::read_dir(self.path(name)).expect("a directory").map(|entry| entry.expect("an entry"));
        entries
            .filter(|entry| entry.file_type().expect("a type").is_file())
            .map(|entry| {
                (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).expect("a file"))
            })
            .collect()
    }
}
