//! `dpsgd join`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use dpsgd::RawSettings;
use dpsgd::report::json;
use dpsgd_federated::Conduct;
use dpsgd_federated::joining::{Joined, Joining, Part};
use serde_json::json;

use crate::board::JoinBoard;
use crate::failure::Failure;
use crate::print;
use crate::terminal::{stop_politely, tell};

/// The flags of `dpsgd join`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  dpsgd join client-1.toml --data people.csv --test public.csv --config schema.toml
  dpsgd join client-1.toml --data mnist --part 1/3
      on one machine, to try it

The same command resumes after an interruption. What leaves this machine are noised updates; the ledger in \
the run's directory is charged before each round, and report.html states the guarantee. It holds whatever \
the coordinator, the broker and the other clients do.")]
pub struct JoinCommand {
    /// client-N.toml, as dpsgd federation init wrote it
    file: PathBuf,
    /// The directory of the run; an interrupted run in it is resumed [default: runs/RUN-client-N]
    #[arg(long, value_name = "DIR", help_heading = "Input and output")]
    out: Option<PathBuf>,
    /// Take the i-th of n equal parts of the training samples
    #[arg(long, value_name = "i/n", help_heading = "Input and output")]
    part: Option<Part>,
    /// Restart a round up to this many times when a new model arrives, instead of finishing it first
    #[arg(long, value_name = "n", default_value_t = 0, help_heading = "The algorithm")]
    restarts: u32,
    /// Let every round take exactly this long; required where the batch size is private [default for
    /// poisson, allocate and filter: 1]
    #[arg(long, value_name = "SECONDS", value_parser = super::seconds, help_heading = "The algorithm")]
    pace: Option<Duration>,
    /// Settings from a TOML file, over those of the client's file; flags win
    #[arg(long, value_name = "FILE.toml", help_heading = "Input and output")]
    config: Option<PathBuf>,
    /// Print one JSON object at the end instead of a statement
    #[arg(long, help_heading = "Input and output")]
    json: bool,
    /// Show no progress
    #[arg(long, help_heading = "Input and output")]
    quiet: bool,
    #[command(flatten)]
    settings: RawSettings,
}

impl JoinCommand {
    /// Trains its rounds, sends their updates, and states the guarantee.
    pub fn run(self) -> Result<(), Failure> {
        let settings = self.settings.with_file(self.config.as_deref())?;
        let conduct = Conduct { restarts: self.restarts, pace: self.pace };
        let mut board = JoinBoard::new(self.quiet);
        let joining =
            Joining::open(&self.file, &settings, (self.part, self.out.clone()), conduct, &mut board)?;
        stop_politely();
        let joined = joining.run(&mut board);
        board.end();
        self.tell(&joined?)
    }

    fn tell(&self, Joined { outcome, attendance, late }: &Joined) -> Result<(), Failure> {
        if *late > 0 {
            tell(&format!(
                "{late} rounds took longer than --pace, and their moment of sending tells so; give more time"
            ));
        }
        if !outcome.finished {
            let again = "Continue with the same dpsgd join:";
            return Err(Failure::Other(outcome.statement.replace("Continue with: dpsgd resume", again)));
        }
        if self.json {
            let mut summary = outcome.summary.clone();
            summary["federation"] = json!(attendance);
            return print(&json::line(&summary));
        }
        let (client, run) = (attendance.client, &attendance.run);
        print(&format!("{}Client {client} of run {run}: {}.\n", outcome.statement, attendance.interrupts()))
    }
}
