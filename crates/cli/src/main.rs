//! The command `dpsgd`: train with differential privacy, and say what the training leaks.
//!
//! Flags, terminal and exit codes; everything else is in the library `dpsgd`. Exit code 0 on success, 2 for
//! bad input (what and where, on standard error), 1 for any other failure. A reader that closes the pipe early is
//! not a failure.

#[cfg(feature = "nats")]
mod board;
mod commands;
mod failure;
mod terminal;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

use self::commands::{
    account, audit, bench, calibrate, curve, data, federate, ledger, manual, reproduce, sweep, train, ui,
};
use self::failure::Failure;
use self::terminal::tell;
use dpsgd::settings::suggestion;

/// Train with differential privacy and know exactly what the training leaks
///
/// Every number is certified: it has a lower and an upper end, and the end that is printed is the one that is
/// guaranteed.
#[derive(Parser)]
#[command(
    name = "dpsgd",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
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
    Account(Box<account::AccountCommand>),
    /// Find the smallest σ, the most epochs or the largest batch that meets a target
    Calibrate(Box<calibrate::CalibrateCommand>),
    /// Draw the trade-off functions of one or more runs as SVG or PNG
    Curve(Box<curve::CurveCommand>),
    /// Train with differential privacy; with no arguments LeNet-5 on MNIST at ε ≤ 3
    Train(Box<train::TrainCommand>),
    /// Continue a run after an interruption
    Resume(train::ResumeCommand),
    /// Evaluate the model of a run on its test set or on other rows, with its guarantee
    Evaluate(train::EvaluateCommand),
    /// Predict new samples with the model of a run
    Predict(train::PredictCommand),
    /// Check that the files of a run agree with its ledger and with the accountant; needs no data
    Verify(train::VerifyCommand),
    /// Show what all runs on each data set have spent together
    Ledger(ledger::LedgerCommand),
    /// Train with every combination of some settings, and say what the search leaks
    Sweep(Box<sweep::SweepCommand>),
    /// Show runs side by side: settings that differ, what they reached, what they guarantee
    Compare(sweep::CompareCommand),
    /// Write the report of a run again
    Report(train::ReportCommand),
    /// Compute every table and figure of the paper
    Reproduce(reproduce::ReproduceCommand),
    /// Attack what would be trained and compare its leakage with the claim
    Audit(audit::AuditCommand),
    /// Set up a federation, or find out what is missing
    #[cfg(feature = "nats")]
    Federation(commands::federation::FederationCommand),
    /// Coordinate a federation: fold the clients' updates into the global model
    #[cfg(feature = "nats")]
    Serve(commands::serve::ServeCommand),
    /// Take part in a federation with private data
    #[cfg(feature = "nats")]
    Join(Box<commands::join::JoinCommand>),
    /// Simulate a federation: many clients and a server in one process, each client with its own guarantee
    Federate(Box<federate::FederateCommand>),
    /// Fetch and list data sets
    Data(data::DataCommand),
    /// Measure how fast a round is
    Bench(bench::BenchCommand),
    /// Show what runs leak and how they go, on a page in the browser
    Ui(ui::UiCommand),
    /// Write shell completions to standard output
    Completions(manual::CompletionsCommand),
    /// Write the manual pages
    Man(manual::ManCommand),
}

/// Writes to standard output.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::ClosedPipe,
        _ => Failure::Other(format!("standard output: {error}")),
    })
}

fn run() -> Result<(), Failure> {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(error),
    };
    match cli.command {
        Command::Account(command) => command.run(),
        Command::Calibrate(command) => command.run(),
        Command::Curve(command) => command.run(),
        Command::Train(command) => command.run(),
        Command::Resume(command) => command.run(),
        Command::Evaluate(command) => command.run(),
        Command::Predict(command) => command.run(),
        Command::Verify(command) => command.run(),
        Command::Ledger(command) => command.run(),
        Command::Sweep(command) => command.run(),
        Command::Compare(command) => command.run(),
        Command::Report(command) => command.run(),
        Command::Reproduce(command) => command.run(),
        Command::Audit(command) => command.run(),
        #[cfg(feature = "nats")]
        Command::Federation(command) => command.run(),
        #[cfg(feature = "nats")]
        Command::Serve(command) => command.run(),
        #[cfg(feature = "nats")]
        Command::Join(command) => command.run(),
        Command::Federate(command) => command.run(),
        Command::Data(command) => command.run(),
        Command::Bench(command) => command.run(),
        Command::Ui(command) => command.run(),
        Command::Completions(command) => command.run(Cli::command()),
        Command::Man(command) => command.run(Cli::command()),
    }
}

/// Prints help, version and complaints as the parser lays them out, with what other libraries' names are here.
fn refuse(mut error: clap::Error) -> Result<(), Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion if !io::stdout().is_terminal() => {
            print(&error.render().to_string())
        }
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => print(&error.render().ansi().to_string()),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            // Help for whoever did not know what to type; still not what a script meant.
            let _ = error.print();
            Err(Failure::Shown)
        }
        _ => {
            let tip = match error.get(ContextKind::InvalidArg) {
                Some(ContextValue::String(given)) => {
                    let ours = suggestion(given.split([' ', '=']).next().unwrap_or_default(), &[]);
                    ours.map(|ours| format!("instead of {given}, use --{ours}"))
                }
                _ => None,
            };
            if let Some(tip) = tip {
                // What it means elsewhere is a better tip than what it looks like.
                error.remove(ContextKind::SuggestedArg);
                error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
            }
            // Coloured where standard error is a terminal.
            let _ = error.print();
            Err(Failure::Shown)
        }
    }
}

fn main() -> ExitCode {
    let (code, why) = match run() {
        Ok(()) | Err(Failure::ClosedPipe) => return ExitCode::SUCCESS,
        Err(Failure::Shown) => return ExitCode::from(2),
        Err(Failure::Input(why)) => (2, why),
        Err(Failure::Other(why)) => (1, why),
        Err(Failure::Stopped(said)) => {
            tell(said.trim_end());
            return ExitCode::from(1);
        }
    };
    // One line, whatever the message quotes.
    let line = why.split_whitespace().collect::<Vec<_>>().join(" ");
    // Nothing is left to be done if standard error is closed as well.
    let _ = writeln!(io::stderr(), "error: {line}");
    ExitCode::from(code)
}
