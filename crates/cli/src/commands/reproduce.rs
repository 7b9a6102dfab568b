//! `dpsgd reproduce`: every table and figure of the paper, beside what the paper prints.

use std::path::PathBuf;

use clap::Args;
use dpsgd::data::Known;
use dpsgd_reproduce::{Options, Part};

use crate::failure::Failure;
use crate::print;
use crate::terminal::Grid;

/// The flags of `dpsgd reproduce`.
#[derive(Args)]
#[command(after_help = "\
Experiments are saved in DIR/cells as they run; an interrupted command continues when it is given again.

Examples:
  dpsgd reproduce --quick
      a small version of everything, in minutes
  dpsgd reproduce table1 table2
  dpsgd reproduce table3 figure1 --data mnist
  dpsgd reproduce table3 --data cifar10 --table-epochs 100 --only cifar10-sh-bc,cifar10-ss-ic
  dpsgd reproduce --only nothing
      the page again, from what has been computed")]
pub struct ReproduceCommand {
    /// What to reproduce [default: all]
    #[arg(value_enum)]
    what: Vec<Part>,
    /// A small version that takes minutes
    #[arg(long)]
    quick: bool,
    /// Data sets: mnist, cifar10 [default: those that are there]
    #[arg(long, value_delimiter = ',')]
    data: Vec<String>,
    /// Where the data sets are [default: $DPSGD_DATA, then data here, in a directory above, or in the source
    /// checkout]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// E of Figure 1 [default: 20; 2 with --quick]
    #[arg(long, value_name = "E")]
    figure_epochs: Option<u64>,
    /// E of Table 3 [default: 100; 3 with --quick]
    #[arg(long, value_name = "E")]
    table_epochs: Option<u64>,
    /// Compute only experiments whose names begin with one of these; others are shown as far as they are
    /// computed (nothing: compute none)
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<String>,
    /// Draw everything from this number
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Threads; the result does not depend on it [default: all cores]
    #[arg(long, value_name = "n")]
    threads: Option<usize>,
    /// The directory for everything that is written [default: reproduce; reproduce-quick with --quick]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

/// The data sets of the paper's experiments.
fn known(name: &str) -> Result<Known, Failure> {
    match name.parse() {
        Ok(known @ (Known::Mnist | Known::Cifar10)) => Ok(known),
        _ => Err(Failure::Input(format!("data = {name}: mnist or cifar10"))),
    }
}

impl ReproduceCommand {
    /// Computes what is asked for and writes the page.
    pub fn run(self) -> Result<(), Failure> {
        let options = Options {
            what: self.what,
            quick: self.quick,
            data: self.data.iter().map(|name| known(name)).collect::<Result<_, _>>()?,
            data_dir: self.data_dir,
            figure_epochs: self.figure_epochs,
            table_epochs: self.table_epochs,
            only: self.only,
            seed: self.seed,
            threads: self.threads,
            out: self.out,
        };
        let page = dpsgd_reproduce::run(&options, &mut Grid::new(self.quiet))?;
        print(&format!("wrote {}\n", page.display()))
    }
}
