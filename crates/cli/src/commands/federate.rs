//! `dpsgd federate`: many clients and a server in one process.

use std::path::PathBuf;

use clap::Args;
use dpsgd::report::json;
use dpsgd::{Observer, RawSettings};
use dpsgd_federated::federate::{Federate, Split};
use dpsgd_federated::simulate::{Conditions, Delay};
use dpsgd_federated::{Combine, Rule, Staleness};

use crate::failure::Failure;
use crate::print;
use crate::terminal::Progress;

/// The flags of `dpsgd federate`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  dpsgd federate --clients 10
      MNIST in ten equal parts, LeNet-5, each client at ε ≤ 3
  dpsgd federate --clients 10 --split dirichlet:0.3 --delay lognormal:2 --rule buffer:8
  dpsgd federate --clients 100 --net logistic --epochs 5 --lost 0.1 --crash 0.01 --seed 7 --json

All clients share one process and one virtual clock; speeds, delays and faults come from --seed, so a run can be \
repeated. The flags of `dpsgd train` describe what each client trains on its own samples; --outer and --momentum \
are the server's. --synchronous waits for all clients in every round, for comparison.")]
pub struct FederateCommand {
    /// Clients
    #[arg(long, value_name = "n", default_value_t = 10, help_heading = "The federation")]
    clients: u64,
    /// Who has which samples: iid, by-label or dirichlet:ALPHA
    #[arg(long, value_name = "SPLIT", default_value = "iid", help_heading = "The federation")]
    split: Split,
    /// How updates become steps: each, buffer:K, trimmed:K:TRIM or median:K
    #[arg(long, value_name = "RULE", default_value = "each", help_heading = "The federation")]
    rule: Rule,
    /// Weight updates by (1 + staleness)^−POWER
    #[arg(long, value_name = "POWER", help_heading = "The federation")]
    staleness_power: Option<f64>,
    /// Reject updates from models older than this many versions [default: 20 for each client]
    #[arg(long, value_name = "VERSIONS", help_heading = "The federation")]
    max_staleness: Option<u64>,
    /// How often a new model may restart a round; 0 finishes it first
    #[arg(long, value_name = "n", default_value_t = 0, help_heading = "The federation")]
    restarts: u32,
    /// Wait for all clients in every round
    #[arg(long, help_heading = "The federation")]
    synchronous: bool,
    /// How long messages travel: none, constant:SECONDS, exponential:MEAN or lognormal:MEDIAN[,SIGMA]
    #[arg(long, value_name = "DELAY", default_value = "none", help_heading = "The network")]
    delay: Delay,
    /// How much the clients' speeds differ: the standard deviation of their logarithm
    #[arg(long, value_name = "SIGMA", default_value_t = 0.0, help_heading = "The network")]
    spread: f64,
    /// The median time of a round, in virtual seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, help_heading = "The network")]
    round_seconds: f64,
    /// The probability that a message is lost
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "The network")]
    lost: f64,
    /// The probability that an update arrives twice
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "The network")]
    repeated: f64,
    /// The probability that a client crashes during a round
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "The network")]
    crash: f64,
    /// The probability that a client is cut off as it begins a round
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "The network")]
    partition: f64,
    /// The probability that the coordinator is killed after an update
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "The network")]
    coordinator_crash: f64,
    /// Publish a model after this many updates [default: 1, and more beyond 100 clients]
    #[arg(long, value_name = "n", help_heading = "The network")]
    publish_every: Option<u64>,
    /// How many clients send the opposite of their update
    #[arg(long, value_name = "n", default_value_t = 0, help_heading = "The network")]
    attackers: u64,
    #[command(flatten)]
    settings: RawSettings,
    /// Settings from a TOML file; flags win
    #[arg(long, value_name = "FILE.toml", help_heading = "Input and output")]
    config: Option<PathBuf>,
    /// Write the summary, the reports and the model to this directory
    #[arg(long, value_name = "DIR", help_heading = "Input and output")]
    out: Option<PathBuf>,
    /// Print one JSON object instead of a statement
    #[arg(long, help_heading = "Input and output")]
    json: bool,
    /// Show no progress
    #[arg(long, help_heading = "Input and output")]
    quiet: bool,
}

impl FederateCommand {
    /// Simulates and prints what was found.
    pub fn run(self) -> Result<(), Failure> {
        let rule = match self.synchronous {
            true if self.rule == Rule::EachUpdate => {
                Rule::Buffer { size: self.clients, combine: Combine::Mean }
            }
            _ => self.rule,
        };
        let conditions = Conditions {
            round_seconds: self.round_seconds,
            spread: self.spread,
            delay: self.delay,
            lost: self.lost,
            repeated: self.repeated,
            crash: self.crash,
            partition: self.partition,
            coordinator_crash: self.coordinator_crash,
            restarts: self.restarts,
            synchronous: self.synchronous,
            save_every: self.publish_every.unwrap_or(self.clients / 100).max(1),
            attackers: self.attackers,
        };
        let raw = self.settings.with_file(self.config.as_deref())?.anchored();
        let mut progress = Progress::new(self.quiet);
        let asked = Federate {
            raw,
            clients: self.clients,
            split: self.split,
            rule,
            weight: Staleness::of_power(self.staleness_power),
            max_staleness: self.max_staleness,
            conditions,
        };
        let federation = asked.prepare(&mut progress)?;
        let planned = federation.planned();
        progress.counts("updates", planned);
        let answer = federation.run(&mut |folded| progress.round(folded))?;
        progress.ends();
        if let Some(out) = &self.out {
            answer.write(out)?;
        }
        if self.json { print(&json::line(&answer.json())) } else { print(&answer.statement()) }
    }
}
