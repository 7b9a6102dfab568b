//! `dpsgd federation init` and `dpsgd federation doctor`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use dpsgd::RawSettings;
use dpsgd_federated::setup::typical::Wanted;
use dpsgd_federated::setup::{SetupError, doctor};
use dpsgd_federated::{Rule, Staleness};

use crate::failure::Failure;
use crate::print;

/// The flags of `dpsgd federation`.
#[derive(Args)]
pub struct FederationCommand {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write all files of a new federation: broker, coordinator, clients
    Init(Box<InitCommand>),
    /// Say what this machine lacks to take part, and how to get it
    Doctor(DoctorCommand),
}

impl FederationCommand {
    /// Does it.
    pub fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::Init(command) => command.run(),
            Command::Doctor(command) => command.run(),
        }
    }
}

/// The flags of `dpsgd federation init`.
#[derive(Args)]
#[command(after_help = "\
Example: three clients on one machine
  dpsgd federation init --clients 3 --out fed
  (cd fed/broker && nats-server -c nats.conf)
  dpsgd serve fed/server.toml
  dpsgd join fed/client-1.toml --data mnist --part 1/3

The settings below are those of a typical client; --outer and --momentum are the server's, whose optimizer is \
plain unless they are given. --data gives the shape of the samples and the public test set; private data is \
not needed. A client may choose another σ, m or C as long as its noise 2Cσ/m stays within --noise-range of the \
typical one.")]
struct InitCommand {
    /// The number of clients
    #[arg(long, value_name = "n", help_heading = "The federation")]
    clients: u64,
    /// The directory to write; must not exist, or be empty
    #[arg(long, value_name = "DIR", help_heading = "The federation")]
    out: PathBuf,
    /// The broker's host name or address, as sites dial it; repeat for more names of the same broker
    #[arg(long, value_name = "HOST", default_value = "localhost", help_heading = "The federation")]
    host: Vec<String>,
    /// The broker's port
    #[arg(long, value_name = "PORT", default_value_t = 4222, help_heading = "The federation")]
    port: u16,
    /// How updates become steps: each, buffer:K, trimmed:K:TRIM or median:K
    #[arg(long, value_name = "RULE", default_value = "each", help_heading = "The federation")]
    rule: Rule,
    /// Weight updates by (1 + staleness)^−POWER
    #[arg(long, value_name = "POWER", help_heading = "The federation")]
    staleness_power: Option<f64>,
    /// Reject updates that started from a model more than this many versions old
    #[arg(long, value_name = "n", default_value_t = 64, help_heading = "The federation")]
    max_staleness: u64,
    /// Clients may have up to this many times more or less noise than the typical one
    #[arg(long, value_name = "x", default_value_t = 2.0, help_heading = "The federation")]
    noise_range: f64,
    /// A name, for people
    #[arg(long, value_name = "TEXT", default_value = "federation", help_heading = "The federation")]
    name: String,
    #[command(flatten)]
    settings: RawSettings,
    /// Settings from a TOML file; flags win
    #[arg(long, value_name = "FILE.toml")]
    config: Option<PathBuf>,
}

impl InitCommand {
    fn run(self) -> Result<(), Failure> {
        let typical = self.settings.with_file(self.config.as_deref())?.anchored();
        let wanted = Wanted {
            clients: self.clients,
            hosts: self.host,
            port: self.port,
            rule: self.rule,
            weight: Staleness::of_power(self.staleness_power),
            max_staleness: self.max_staleness,
            noise_range: self.noise_range,
            name: self.name,
            typical,
        };
        let written = wanted.setup()?.write(&self.out).map_err(|error| match error {
            SetupError::Terms(_) => Failure::Input(error.to_string()),
            _ => Failure::Other(error.to_string()),
        })?;
        let mut text: String = written.iter().map(|path| format!("wrote {}\n", path.display())).collect();
        text.push_str(&format!("next: {}\n", self.out.join("README.md").display()));
        print(&text)
    }
}

/// The flags of `dpsgd federation doctor`.
#[derive(Args)]
#[command(after_help = "\
Exit code: 0 everything is there, 1 something is missing (each is named, with the way to get it).")]
struct DoctorCommand {
    /// Files of members, server.toml or client-N.toml, whose broker is dialled
    files: Vec<PathBuf>,
}

impl DoctorCommand {
    fn run(self) -> Result<(), Failure> {
        let (text, missing) = doctor::report(&self.files, Duration::from_secs(5));
        print(&text)?;
        if missing == 0 { Ok(()) } else { Err(Failure::Other(format!("{missing} things are missing"))) }
    }
}
