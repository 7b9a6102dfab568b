//! `dpsgd sweep` and `dpsgd compare`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use dpsgd::compare::Comparison;
use dpsgd::report::json;
use dpsgd::sweep::select::Law;
use dpsgd::sweep::{Row, Sweep, Vary, Watch};
use dpsgd::train::directory::write_atomically;
use dpsgd::{RawSettings, SavedRun};

use crate::failure::{Failure, at};
use crate::print;
use crate::terminal::{stop_politely, stopped, tell};

/// The flags of `dpsgd sweep`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  dpsgd sweep --config base.toml --vary step=0.5,1,2 --vary clip=0.1,1 --seeds 3 --jobs 2 --out sweeps/steps
      every combination, three times each; with seeds, so reproducible and NOT private
  dpsgd sweep --config base.toml --vary step=0.5,1,2 --out sweeps/private
      private runs; what all of them leak together is stated
  dpsgd sweep --config base.toml --vary step=0.5,1,2 --select private --tries 10 --out sweeps/best
      a secret number of tries, ten on average, with settings drawn at random; only the best is kept, and its
      release costs little more than one run

The directory holds sweep.csv, sweep.html and a run directory for each run. The same command continues a sweep \
that was interrupted.")]
pub struct SweepCommand {
    #[command(flatten)]
    settings: RawSettings,
    /// Settings from a TOML file; flags win
    #[arg(long, value_name = "FILE.toml", help_heading = "The sweep")]
    config: Option<PathBuf>,
    /// A setting and its values; can be repeated, and every combination is trained
    #[arg(long, value_name = "NAME=VALUE,…", help_heading = "The sweep")]
    vary: Vec<String>,
    /// Repeat every combination with the seeds 1 to n: reproducible, and NOT private
    #[arg(long, value_name = "n", help_heading = "The sweep")]
    seeds: Option<u64>,
    /// Runs at the same time, which share the threads
    #[arg(long, value_name = "n", default_value_t = 1, help_heading = "The sweep")]
    jobs: usize,
    /// Keep every run, or only the best of a random number of tries
    #[arg(long, value_enum, default_value = "all", help_heading = "The sweep")]
    select: Select,
    /// The mean number of tries of --select private
    #[arg(long, value_name = "k", default_value_t = 10.0, help_heading = "The sweep")]
    tries: f64,
    /// The law of the number of tries
    #[arg(long, value_enum, default_value = "poisson", help_heading = "The sweep")]
    tries_law: Law,
    /// The directory of the sweep
    #[arg(long, value_name = "DIR", help_heading = "The sweep")]
    out: PathBuf,
    /// Print one JSON object at the end instead of a statement
    #[arg(long, help_heading = "The sweep")]
    json: bool,
    /// Show no progress
    #[arg(long, help_heading = "The sweep")]
    quiet: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Select {
    /// Every run of the grid; their leakage adds up
    All,
    /// The best of a random number of tries, by the theorem of Papernot and Steinke
    Private,
}

/// Tells of runs, and of nothing where they are secret.
struct Lines {
    quiet: bool,
}

impl Watch for Lines {
    fn begins(&self, run: &str, number: usize, of: usize) {
        if !self.quiet {
            tell(&format!("{number}/{of} {run}: training"));
        }
    }

    fn ended(&self, row: &Row) {
        if !self.quiet {
            tell(&format!("{}: {}", row.name, row.said()));
        }
    }

    fn warns(&self, warning: &str) {
        tell(&format!("warning: {warning}"));
    }

    fn wants_to_stop(&self) -> bool {
        stopped()
    }
}

impl SweepCommand {
    /// Trains the runs, or the tries.
    pub fn run(self) -> Result<(), Failure> {
        let base = self.settings.with_file(self.config.as_deref())?.anchored();
        let vary = self.vary.iter().map(|text| Vary::parse(text)).collect::<Result<_, _>>()?;
        let sweep = Sweep { base, vary, seeds: self.seeds, out: self.out, jobs: self.jobs };
        let watch = Lines { quiet: self.quiet };
        stop_politely();
        let (finished, statement, value) = match self.select {
            Select::All => {
                let swept = sweep.run(&watch)?;
                (swept.rows.len() == swept.planned, swept.statement(), swept.json())
            }
            Select::Private => {
                if !self.quiet {
                    tell("training; the number of tries and how they do stay secret");
                }
                let chosen = sweep.select(self.tries_law, self.tries, &watch)?;
                (chosen.finished, chosen.statement, chosen.json)
            }
        };
        if !finished {
            return Err(Failure::Stopped(statement));
        }
        if self.json { print(&json::line(&value)) } else { print(&statement) }
    }
}

/// The flags of `dpsgd compare`.
#[derive(Args)]
pub struct CompareCommand {
    /// The directories of the runs
    #[arg(required = true, num_args = 2.., value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Also write a page with the curves over each other
    #[arg(long, value_name = "FILE.html")]
    out: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl CompareCommand {
    /// Shows runs side by side.
    pub fn run(self) -> Result<(), Failure> {
        let runs = self.runs.iter().map(|path| SavedRun::open(path)).collect::<Result<Vec<_>, _>>()?;
        let found = Comparison::of(&runs)?;
        if let Some(path) = &self.out {
            write_atomically(path, found.html().as_bytes()).map_err(at(path))?;
        }
        let columns = console_width();
        if self.json { print(&json::line(&found.json())) } else { print(&found.statement(columns)) }
    }
}

/// The columns of the terminal; 100 where there is none.
fn console_width() -> usize {
    terminal_size::terminal_size().map_or(100, |(width, _)| usize::from(width.0))
}
