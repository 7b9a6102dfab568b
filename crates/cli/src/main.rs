//! The command `dpsgd`: train with differential privacy, and say what the training leaks.
//!
//! Everything that is printed is printed here or in the commands; the mathematics is in
//! `dpsgd-privacy`, the training in `dpsgd-train`. Exit code 0 on success, 2 for bad input (one line on standard error), 1 for any
//! other failure. A reader that closes the pipe early is no failure.

mod account;
mod audit;
mod bench;
mod calibrate;
mod chart;
mod curve;
mod data;
mod file;
mod html;
mod json;
mod reproduce;
mod rounding;
mod settings;
mod statement;
mod train;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

/// Train with differential privacy and say exactly what the training leaks
///
/// Every number is certified: it comes with a lower and an upper end, and the end that is printed is
/// the one that is guaranteed.
#[derive(Parser)]
#[command(
    name = "dpsgd",
    version,
    max_term_width = 100,
    after_help = "\
Exit code: 0 done, 2 bad input (one line says what), 1 any other failure."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Account for a run: ε, δ, µ and the power of the best attack, for both adversaries
    Account(account::Account),
    /// Find the smallest σ, the most epochs or the largest batch that meets a target
    Calibrate(calibrate::Calibrate),
    /// Draw the trade-off functions of one or more runs as SVG or PNG
    Curve(curve::CurveCommand),
    /// Train with differential privacy; with no arguments LeNet-5 on MNIST at ε ≤ 3
    Train(Box<train::Train>),
    /// Go on with a run after a crash
    Resume(train::Resume),
    /// Evaluate the model of a run on its test set, with its guarantee
    Evaluate(train::Evaluate),
    /// Write the report of a run again
    Report(train::ReportCommand),
    /// Every table and figure of the paper, from this software
    Reproduce(reproduce::Reproduce),
    /// Attack what would be trained and compare its leakage with the claim
    Audit(audit::Audit),
    /// Fetch and list data sets
    Data(data::Data),
    /// Measure how fast a round is
    Bench(bench::Bench),
}

/// Why the command did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// What was asked for is wrong or cannot be answered.
    #[error("{0}")]
    Input(String),
    /// The machine did not play along.
    #[error("{0}")]
    Machine(String),
    /// Nobody reads the output any more.
    #[error("the reader is gone")]
    ClosedPipe,
}

impl From<dpsgd_privacy::PrivacyError> for Failure {
    fn from(error: dpsgd_privacy::PrivacyError) -> Self {
        Failure::Input(error.to_string())
    }
}

impl From<dpsgd_privacy::mechanism::MechanismError> for Failure {
    fn from(error: dpsgd_privacy::mechanism::MechanismError) -> Self {
        Failure::Input(error.to_string())
    }
}

/// Writes to standard output.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::ClosedPipe,
        _ => Failure::Machine(format!("standard output: {error}")),
    })
}

fn run() -> Result<(), Failure> {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    match cli.command {
        Command::Account(command) => command.run(),
        Command::Calibrate(command) => command.run(),
        Command::Curve(command) => command.run(),
        Command::Train(command) => command.run(),
        Command::Resume(command) => command.run(),
        Command::Evaluate(command) => command.run(),
        Command::Report(command) => command.run(),
        Command::Reproduce(command) => command.run(),
        Command::Audit(command) => command.run(),
        Command::Data(command) => command.run(),
        Command::Bench(command) => command.run(),
    }
}

/// Prints help and version; turns every complaint of the parser into one line.
fn refuse(error: &clap::Error) -> Result<(), Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => print(&error.render().to_string()),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            Err(Failure::Input(
                "a command is missing: train, account or another; get or list after data, mechanism or training after audit (see dpsgd --help)"
                    .into(),
            ))
        }
        _ => {
            let text = error.render().to_string();
            let said =
                text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
            let said: Vec<&str> = said.map(str::trim).filter(|line| !line.is_empty()).collect();
            Err(Failure::Input(said.join(" ").trim_start_matches("error: ").to_string()))
        }
    }
}

fn main() -> ExitCode {
    let code = match run() {
        Ok(()) | Err(Failure::ClosedPipe) => return ExitCode::SUCCESS,
        Err(Failure::Input(ref why)) => (2, why.clone()),
        Err(Failure::Machine(ref why)) => (1, why.clone()),
    };
    // One line, whatever the message quotes.
    let line = code.1.split_whitespace().collect::<Vec<_>>().join(" ");
    // Nothing is left to be done if standard error is closed as well.
    let _ = writeln!(io::stderr(), "error: {line}");
    ExitCode::from(code.0)
}
