//! `dpsgd ledger`: what all runs have spent together.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use dpsgd::SavedRun;
use dpsgd::report::json;
use dpsgd::report::rounding::up;
use dpsgd::report::text::{number, subscript};
use dpsgd::shared_ledger::{Entry, Place, SharedLedger, total};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::print;

/// The flags of `dpsgd ledger`.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
The shared ledger is a directory outside of the runs: $DPSGD_LEDGER, or else dpsgd in your directory for state. \
It refuses older copies of run directories and other data on resume, and adds up all runs on one data set by \
composing their curves. It knows only the runs that were recorded in it."
)]
pub struct LedgerCommand {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    at: At,
    /// Only the runs on these data: their file or folder, or the name of the data set
    #[arg(value_name = "DATA")]
    data: Option<String>,
    /// The same
    #[arg(long, value_name = "NAME", conflicts_with = "data")]
    data_set: Option<String>,
    /// δ at which ε is stated
    #[arg(long, value_name = "δ", default_value_t = 1e-5)]
    delta: f64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Action {
    /// Record a run, as its directory is now
    Add {
        /// The directory of the run
        directory: PathBuf,
        #[command(flatten)]
        at: At,
    },
}

/// Where the shared ledger is.
#[derive(Args)]
pub struct At {
    /// The shared ledger [default: $DPSGD_LEDGER, then dpsgd in the user's directory for state]
    #[arg(long, value_name = "DIR")]
    pub ledger: Option<PathBuf>,
}

impl At {
    /// The place.
    pub fn place(&self) -> Place {
        self.ledger.as_deref().map_or(Place::Usual, Place::said)
    }
}

impl LedgerCommand {
    /// Shows the shared ledger, or records a run in it.
    pub fn run(self) -> Result<(), Failure> {
        match self.action {
            Some(Action::Add { directory, at }) => {
                let ledger = SavedRun::open(&directory)?.record(&at.place())?;
                print(&format!("recorded {} in {}\n", directory.display(), ledger.path().display()))
            }
            None => self.show(),
        }
    }

    fn show(self) -> Result<(), Failure> {
        if !(self.delta > 0.0 && self.delta < 1.0) {
            return Err(Failure::Input(format!("delta = {}: must be between 0 and 1", number(self.delta))));
        }
        let Some(ledger) = SharedLedger::view(&self.at.place())? else {
            return Err(Failure::Input("ledger: there is none yet; the first run makes it".into()));
        };
        let mut sets: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
        for entry in ledger.entries()? {
            sets.entry(entry.data_set.clone()).or_default().push(entry);
        }
        if let Some(wanted) = self.data.as_ref().or(self.data_set.as_ref()) {
            // A file is known by where it is.
            let path = std::fs::canonicalize(wanted).map(|path| path.display().to_string());
            let known: Vec<String> = sets.keys().cloned().collect();
            sets.retain(|name, _| name == wanted || path.as_ref().is_ok_and(|path| path == name));
            if sets.is_empty() {
                let known = known.join(", ");
                return Err(Failure::Input(format!(
                    "{wanted}: no run on it is recorded; there are: {known}"
                )));
            }
        }
        if self.json {
            let sets: Vec<Value> = sets.iter().map(|(name, runs)| self.value(name, runs)).collect();
            return print(&json::line(&json!({ "ledger": ledger.path(), "data_sets": sets })));
        }
        let mut text = format!("{}\n", ledger.path().display());
        for (name, runs) in &sets {
            text.push_str(&format!("\n{name}\n"));
            for run in runs {
                let state = if run.finished { "finished" } else { "not finished" };
                let seeded = if run.private { "" } else { ", with a seed: not private" };
                text.push_str(&format!(
                    "  {}: {} of {} rounds charged, {state}{seeded}\n",
                    run.directory,
                    run.charged,
                    run.mechanism.rounds()
                ));
            }
            text.push_str(&format!("  together: {}\n", self.together(runs)));
        }
        print(&text)
    }

    fn together(&self, runs: &[Entry]) -> String {
        let sum = match total(runs) {
            Ok(sum) => sum,
            Err(error) => return format!("cannot be added up: {error}"),
        };
        match sum.epsilon(self.delta) {
            Some(Ok((epsilon, adversary))) => {
                let (bound, delta) = (up(epsilon, 6), number(self.delta));
                format!("ε ≤ {bound} at δ = {delta} against {}", subscript(adversary))
            }
            Some(Err(error)) => format!("cannot be added up: {error}"),
            None => "no private run".to_string(),
        }
    }

    fn value(&self, name: &str, runs: &[Entry]) -> Value {
        let sum = total(runs).ok().and_then(|sum| sum.epsilon(self.delta)).and_then(Result::ok);
        let listed: Vec<Value> = runs
            .iter()
            .map(|run| {
                json!({
                    "run": run.run,
                    "directory": run.directory,
                    "begun": run.begun,
                    "private": run.private,
                    "finished": run.finished,
                    "rounds_charged": run.charged,
                    "rounds": run.mechanism.rounds(),
                })
            })
            .collect();
        json!({
            "data_set": name,
            "runs": listed,
            "epsilon": sum.map(|(epsilon, _)| epsilon),
            "delta": self.delta,
            "adversary": sum.map(|(_, adversary)| adversary.name()),
        })
    }
}
