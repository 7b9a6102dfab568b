//! `dpsgd train`, `resume`, `evaluate` and `report`.

pub mod algorithm;
mod budget;
mod course;
pub mod defaults;
pub mod directory;
pub mod evaluation;
mod facts;
pub mod features;
pub mod inputs;
pub mod mechanism;
mod metrics;
pub mod net;
pub mod outputs;
pub mod progress;
mod report;
pub mod samples;
pub mod settings;
pub mod setup;
mod summary;

use std::path::PathBuf;

use clap::Args;

use self::course::Ending;
use self::progress::tell;
use self::settings::TrainSettings;
use self::setup::Setup;
use crate::{Failure, json, print};

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

In a file the settings have the names of the flags. A CSV file needs to be told what its columns mean:
  data = \"people.csv\"
  test = \"public.csv\"
  [schema.label]
  name = \"income\"
  categories = [\"low\", \"high\"]
  [[schema.column]]
  name = \"age\"
  range = [0, 100]")]
pub struct Train {
    #[command(flatten)]
    settings: TrainSettings,
    /// Settings from a TOML file; flags win
    #[arg(long, value_name = "FILE.toml", help_heading = "Input and output")]
    config: Option<PathBuf>,
    /// The directory of the run; must not exist, or be empty [default: runs/DATA-NET-1, or the first free number]
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

impl Train {
    /// Trains from the first round.
    pub fn run(self) -> Result<(), Failure> {
        let settings = self.settings.layered(self.config.as_ref())?.anchored();
        let ending = course::begin(Setup::new(&settings)?, self.out, self.shown.quiet)?;
        finish(&ending, self.shown)
    }
}

/// The flags of `dpsgd resume`.
#[derive(Args)]
pub struct Resume {
    /// The directory of the run
    directory: PathBuf,
    /// Threads; the result does not depend on it [default: all cores]
    #[arg(long, value_name = "n")]
    threads: Option<usize>,
    #[command(flatten)]
    shown: Shown,
}

impl Resume {
    /// Goes on where a crash ended the run.
    pub fn run(self) -> Result<(), Failure> {
        let setup = outputs::setup(&self.directory, self.threads)?;
        let ending = course::resume(setup, &self.directory, self.shown.quiet)?;
        finish(&ending, self.shown)
    }
}

fn finish(ending: &Ending, shown: Shown) -> Result<(), Failure> {
    if ending.not_finite > 0 {
        tell(&format!(
            "{} group results were not finite and counted as zero (this number is a function of the private data: \
             it is for you, not for publishing)",
            ending.not_finite
        ));
    }
    if shown.json { print(&json::line(&ending.summary)) } else { print(&ending.statement) }
}

/// The flags of `dpsgd evaluate`.
#[derive(Args)]
pub struct Evaluate {
    /// The directory of the run
    directory: PathBuf,
    /// Threads; the result does not depend on it [default: all cores]
    #[arg(long, value_name = "n")]
    threads: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Evaluate {
    /// Evaluates the saved model on the test set.
    pub fn run(self) -> Result<(), Failure> {
        let (value, text) = outputs::evaluated(&self.directory, self.threads)?;
        if self.json { print(&json::line(&value)) } else { print(&text) }
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
        let path = outputs::reported(&self.directory)?;
        print(&format!("wrote {}\n", path.display()))
    }
}
