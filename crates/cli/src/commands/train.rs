//! `dpsgd train`, `resume`, `evaluate`, `verify` and `report`.

use std::path::PathBuf;

use clap::Args;
use dpsgd::prepare::Resume;
use dpsgd::report::rounding::up;
use dpsgd::report::text::{number, subscript};
use dpsgd::report::{Sizes, json};
use dpsgd::shared_ledger::{Rollback, Seen};
use dpsgd::train::Native;
use dpsgd::verify::{Identity, SIGNED};
use dpsgd::{Outcome, Prepared, RawSettings, Run, SavedRun, prepare};
use serde_json::json;

use super::ledger::At;
use crate::failure::Failure;
use crate::print;
use crate::terminal::{Progress, stop_politely, tell, warn_of_delta};

/// The flags of `dpsgd train`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  dpsgd train
      MNIST, LeNet-5, σ chosen for ε ≤ 3 at δ = 1e-5
  dpsgd train --net logistic --epochs 5 --target-epsilon 1
  dpsgd train --data fashion-mnist --sampling shuffle --groups 16 --group-size 64 --sigma 4 --step 0.03
  dpsgd train --sampling poisson --rate 0.01 --groups 600 --noise-multiplier 1 --max-epsilon 2
  dpsgd train --inner sgd --groups 64 --group-size 32 --inner-step 0.1
  dpsgd train --config run.toml --out runs/mine
  dpsgd train --data photos/ --test public/ --classes cat,dog --image-size 32x32

In a file the settings have the names of the flags; [[phase]] tables change the sampler, its sizes, the \
length and the noise during a run. A table (.csv, .parquet) needs a schema that declares its columns; arrays and \
folders of images need --classes and --value-range or --image-size (docs/data.md):
  data = \"people.csv\"
  test = \"public.csv\"
  [schema.label]
  name = \"income\"
  categories = [\"low\", \"high\"]
  [[schema.column]]
  name = \"age\"
  range = [0, 100]")]
pub struct TrainCommand {
    #[command(flatten)]
    settings: RawSettings,
    /// Settings from a TOML file; flags win
    #[arg(long, value_name = "FILE.toml", help_heading = "Input and output")]
    config: Option<PathBuf>,
    /// The directory of the run; must not exist, or be empty [default: runs/DATA-NET-1, or the first free
    /// number]
    #[arg(long, value_name = "DIR", help_heading = "Input and output")]
    out: Option<PathBuf>,
    #[command(flatten)]
    shown: Shown,
}

/// How a command shows itself.
#[derive(Args, Clone, Copy)]
pub struct Shown {
    /// Print one JSON object at the end instead of a statement
    #[arg(long, help_heading = "Input and output")]
    json: bool,
    /// Show no progress
    #[arg(long, help_heading = "Input and output")]
    quiet: bool,
}

impl TrainCommand {
    /// Trains from the first round.
    pub fn run(self) -> Result<(), Failure> {
        let raw = self.settings.with_file(self.config.as_deref())?.anchored();
        let mut progress = Progress::new(self.shown.quiet);
        let prepared = Prepared::new(&raw, &mut progress)?;
        warn_of_delta(&prepared.settings);
        let run = prepared.start(self.out)?;
        train(run, progress, self.shown)
    }
}

/// The flags of `dpsgd resume`.
#[derive(Args)]
pub struct ResumeCommand {
    /// The directory of the run
    directory: PathBuf,
    /// Threads; the result does not depend on it [default: all cores]
    #[arg(long, value_name = "n")]
    threads: Option<usize>,
    #[command(flatten)]
    at: At,
    /// If the directory is an older copy of the run, count what the newer copy charged and go on after that
    #[arg(long)]
    charge_rollback: bool,
    #[command(flatten)]
    shown: Shown,
}

impl ResumeCommand {
    /// Continues a run that was interrupted.
    pub fn run(self) -> Result<(), Failure> {
        let mut progress = Progress::new(self.shown.quiet);
        let rollback = if self.charge_rollback { Rollback::Charge } else { Rollback::Refuse };
        let how = Resume { threads: self.threads, ledger: self.at.ledger, rollback };
        let run = prepare::resume_with(&self.directory, how, &mut progress)?;
        train(run, progress, self.shown)
    }
}

fn train(run: Run<Native>, mut progress: Progress, shown: Shown) -> Result<(), Failure> {
    stop_politely();
    let outcome: Outcome = run.train(&mut progress)?;
    if outcome.not_finite > 0 {
        tell(&format!(
            "{} group results were not finite and counted as zero (this number is a function of the private \
             data: it is for you, not for publishing)",
            outcome.not_finite
        ));
    }
    if !outcome.finished {
        return Err(Failure::Stopped(outcome.statement));
    }
    if shown.json { print(&json::line(&outcome.summary)) } else { print(&outcome.statement) }
}

/// The flags of `dpsgd evaluate`.
#[derive(Args)]
pub struct EvaluateCommand {
    /// The directory of the run
    directory: PathBuf,
    /// Other samples to measure on, in the format of the data. The result is a function of them that no noise
    /// covers [default: the public test set of the run]
    #[arg(long, value_name = "FILE|FOLDER")]
    test: Option<PathBuf>,
    /// Threads; the result does not depend on it [default: all cores]
    #[arg(long, value_name = "n")]
    threads: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl EvaluateCommand {
    /// Evaluates the saved model on the test set.
    pub fn run(self) -> Result<(), Failure> {
        let evaluated = SavedRun::open(&self.directory)?.evaluate_on(self.test.as_deref(), self.threads)?;
        if self.json { print(&json::line(&evaluated.json())) } else { print(&evaluated.statement()) }
    }
}

/// The flags of `dpsgd predict`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  dpsgd predict runs/people-logistic-1 new.csv > predictions.csv
  dpsgd predict runs/mnist-lenet5-1 t10k-images-idx3-ubyte
  dpsgd predict runs/photos-lenet5-1 new-photos/

Predicting costs no privacy of the training data. The run directory also holds model.py, which does the same \
in plain PyTorch.")]
pub struct PredictCommand {
    /// The directory of the run
    directory: PathBuf,
    /// New samples: a table with the columns of the schema (the label is not needed), arrays, a folder of images
    /// or a single one, or images in the format of the data set of the run
    file: PathBuf,
    /// Divide the scores by the temperature that suits these labelled public samples best, or the public test
    /// set of the run: probabilities then say how often they are right. Costs no privacy of the training data
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    calibrate: Option<Option<PathBuf>>,
    /// Threads [default: all cores]
    #[arg(long, value_name = "n")]
    threads: Option<usize>,
    /// Print one JSON object instead of CSV
    #[arg(long)]
    json: bool,
}

impl PredictCommand {
    /// Predicts and prints, one line for each sample.
    pub fn run(self) -> Result<(), Failure> {
        let threads = self.threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from));
        let (run, threads) = (SavedRun::open(&self.directory)?, threads.unwrap_or(1));
        let temperature = match &self.calibrate {
            Some(public) => {
                let fitted = run.temperature(public.as_deref(), threads)?;
                eprintln!("temperature {fitted:.4}");
                fitted
            }
            None => 1.0,
        };
        let found = run.predict_file_at(temperature, &self.file, threads)?;
        if self.json { print(&json::line(&found.json())) } else { print(&found.csv()) }
    }
}

/// The flags of `dpsgd verify`.
#[derive(Args)]
#[command(after_help = "\
Exit code: 0 everything agrees, 1 something does not (each is named), 2 the directory cannot be believed at \
all.

It compares the configuration, summary.json, model.safetensors and report.html with the ledger and with what \
the accountant says now. Where a shared ledger knows the run, an older copy of the directory is found. It \
cannot show what else the data were used for; `dpsgd ledger` shows the runs that were recorded.")]
pub struct VerifyCommand {
    /// The directory of the run
    directory: PathBuf,
    #[command(flatten)]
    at: At,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl VerifyCommand {
    /// Verifies the directory and prints what was found.
    pub fn run(self) -> Result<(), Failure> {
        let run = SavedRun::open(&self.directory)?;
        let found = run.verify_with(&self.at.place())?;
        let settings = run.settings()?;
        if self.json {
            let sizes = Sizes { samples: settings.samples, groups: settings.groups };
            let mut told = json::account(&found.account, sizes, &settings.alphas);
            let findings = found.findings.iter();
            let findings: Vec<_> =
                findings.map(|finding| json!({ "file": finding.file, "what": finding.what })).collect();
            print(&json::line(&json!({
                "agrees": found.findings.is_empty(),
                "findings": findings,
                "finished": found.finished,
                "rounds_charged": found.ledger.charged,
                "resumes": found.ledger.resumes,
                "run": found.identity.run,
                "begun": found.identity.begun,
                "sha256": found.identity.sha256,
                "version": env!("CARGO_PKG_VERSION"),
                "shared_ledger": seen(&found.seen).0,
                "guarantees": told["guarantees"].take(),
                "note": run.facts()?.note(&settings),
            })))?;
        } else {
            let mut text = which(&found.identity);
            text.push_str(&format!(
                "the ledger is whole: {} rounds charged, resumed {} times\n",
                found.ledger.charged, found.ledger.resumes
            ));
            for given in &found.account.guarantees {
                text.push_str(&format!(
                    "computed anew: ε ≤ {} at δ = {} against {}\n",
                    up(given.answer.upper, 6),
                    number(settings.budget.delta),
                    subscript(given.adversary)
                ));
            }
            if let Some(note) = run.facts()?.note(&settings) {
                text.push_str(&format!("but the run is {note}\n"));
            }
            if found.findings.is_empty() && found.finished {
                text.push_str("configuration, summary, model and report agree with it\n");
            } else if found.findings.is_empty() {
                text.push_str("the run has not finished: there is no summary, model or report yet\n");
            }
            text.push_str(seen(&found.seen).1);
            if let Some(digest) = &found.identity.sha256 {
                text.push_str(&format!(
                    "to sign: SHA-256 {digest}\n  of `sha256sum {} | sha256sum` in the directory\n",
                    SIGNED.join(" ")
                ));
            }
            print(&text)?;
        }
        let list: Vec<String> =
            found.findings.iter().map(|finding| format!("{}: {}", finding.file, finding.what)).collect();
        if list.is_empty() { Ok(()) } else { Err(Failure::Other(list.join("; "))) }
    }
}

/// Which run it is, and who looked at it.
fn which(identity: &Identity) -> String {
    let name = identity.run.as_deref().unwrap_or("without a name (no shared ledger recorded it)");
    let day = identity.begun.as_ref().map(|day| format!(", begun on {day}")).unwrap_or_default();
    format!("run {name}{day}; verified with dpsgd {}\n", env!("CARGO_PKG_VERSION"))
}

/// What the shared ledger says: for programs and for people.
fn seen(seen: &Seen) -> (&'static str, &'static str) {
    match seen {
        Seen::NotRecorded => {
            ("not-recorded", "no shared ledger knows this run: an older copy of it would look the same\n")
        }
        Seen::Unknown => (
            "unknown",
            "the shared ledger of this run is not here: an older copy of the directory would look the same\n",
        ),
        Seen::Newest => {
            ("newest", "the shared ledger knows this run: the directory has everything that it charged\n")
        }
        Seen::Older(_) => ("older", ""),
    }
}

/// The flags of `dpsgd report`.
#[derive(Args)]
pub struct ReportCommand {
    /// The directory of the run
    directory: PathBuf,
}

impl ReportCommand {
    /// Writes `report.html` again.
    pub fn run(self) -> Result<(), Failure> {
        let path = SavedRun::open(&self.directory)?.write_report()?;
        print(&format!("wrote {}\n", path.display()))
    }
}
