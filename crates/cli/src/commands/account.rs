//! `dpsgd account`: everything that can be said about what a run leaks.

use std::path::PathBuf;

use clap::Args;
use dpsgd::report::{json, statement};
use dpsgd::{RawSettings, Sizes};

use crate::failure::Failure;
use crate::print;
use crate::terminal::{Progress, warn_of_delta};

/// The flags of `dpsgd account`: those of `dpsgd train`.
#[derive(Args)]
#[command(after_help = "\
Any `dpsgd train …` becomes an account of what it would leak by writing `dpsgd account …`.

Examples:
  dpsgd account
      what `dpsgd train` would leak
  dpsgd account --samples 60000 --groups 64 --epochs 100 --sigma 2
      the setting of the paper's experiments
  dpsgd account --sampling shuffle --groups 1 --group-size 64 --sigma 2 --differing 4
  dpsgd account --sampling poisson --rate 0.01 --rounds 1000 --noise-multiplier 1
  dpsgd account --sampling allocate --rounds-per-epoch 234 --epochs 100 --noise-multiplier 1 --delta 1e-5
  dpsgd account --config runs/mnist-lenet5-1/config.toml --epsilon 3 --json

In a file the settings have the names of the flags; [[phase]] tables change them during a run:
  samples = 50000
  sigma = 1.5
  release-mu = [0.1]
  [[phase]]
  epochs = 10
  [[phase]]
  epochs = 20
  sigma = 3.0")]
pub struct AccountCommand {
    #[command(flatten)]
    settings: RawSettings,
    /// Settings from a TOML file; flags win
    #[arg(long, value_name = "FILE.toml", help_heading = "Input and output")]
    config: Option<PathBuf>,
    /// Print one JSON object instead of a statement
    #[arg(long, help_heading = "Input and output")]
    json: bool,
}

impl AccountCommand {
    /// Accounts for the run and prints the result.
    pub fn run(self) -> Result<(), Failure> {
        let raw = self.settings.with_file(self.config.as_deref())?;
        Progress::new(self.json).calibrating_for(&raw);
        let settings = raw.resolve()?;
        warn_of_delta(&settings);
        let account = settings.account()?;
        let sizes = Sizes { samples: settings.samples, groups: settings.groups };
        if self.json {
            print(&json::line(&json::account(&account, sizes, &settings.alphas)))
        } else {
            print(&statement::account(&account, sizes))
        }
    }
}
