//! `dpsgd reproduce`: every table and figure of the paper, from this software, beside what the paper prints.

mod accuracy;
mod altered;
mod beyond;
mod experiment;
mod guarantees;
mod laboratory;
mod page;
mod panels;
mod printed;
mod progress;
mod section;
mod stated;
mod store;
mod tuning;
mod why;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use dpsgd_data::{Known, known};
use dpsgd_train::plan::MOST_THREADS;

use self::experiment::Part;
use self::laboratory::Laboratory;
use self::panels::Scale;
use self::section::Section;
use crate::train::progress::tell;
use crate::{Failure, print};

/// The flags of `dpsgd reproduce`.
#[derive(Args)]
#[command(after_help = "\
Experiments are saved in DIR/cells after every epoch or so; the same command goes on where it was ended.

Examples:
  dpsgd reproduce --quick
      a small version of everything, in minutes
  dpsgd reproduce table1 table2
  dpsgd reproduce table3 figure1 --data mnist
  dpsgd reproduce table3 --data cifar10 --table-epochs 100 --only cifar10-sh-bc,cifar10-ss-ic
  dpsgd reproduce --only nothing
      the page again, from what has been computed")]
pub struct Reproduce {
    /// What to reproduce [default: all]
    #[arg(value_enum)]
    what: Vec<What>,
    /// A small version that takes minutes
    #[arg(long)]
    quick: bool,
    /// Data sets: mnist, cifar10 [default: those that are there]
    #[arg(long, value_delimiter = ',')]
    data: Vec<String>,
    /// Where the data sets are [default: $DPSGD_DATA, then data here, in a directory above or in the source checkout]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// E of Figure 1 [default: 20; 2 with --quick]
    #[arg(long, value_name = "E")]
    figure_epochs: Option<u64>,
    /// E of Table 3 [default: 100; 3 with --quick]
    #[arg(long, value_name = "E")]
    table_epochs: Option<u64>,
    /// Compute only experiments whose names begin with one of these; the others are shown as far as they are (nothing: compute none)
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<String>,
    /// Draw everything from this number
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Threads; the result does not depend on it [default: all cores]
    #[arg(long, value_name = "n")]
    threads: Option<usize>,
    /// The directory of everything that is written [default: reproduce; reproduce-quick with --quick]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

/// A part of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// The guarantees against A₁
    Table1,
    /// The guarantees against A₀ and A₁
    Table2,
    /// The best accuracies
    Table3,
    /// Accuracy over epochs, twelve panels
    Figure1,
    /// Where the printed accuracies come from: the same runs with less noise
    Why,
    /// The best settings found against the paper's at equal ε
    Beyond,
}

/// The name of no experiment, for `--only`.
const NOTHING: &str = "nothing";
/// The most epochs of a run.
const MOST_EPOCHS: u64 = 10_000;
/// |S_b| of the paper, and of the small version.
const BATCHES: [u64; 5] = [64, 128, 256, 512, 1024];
const QUICK_BATCHES: [u64; 2] = [128, 1024];
/// The training samples of the small version.
const QUICK_SAMPLES: u64 = 6_000;

impl Reproduce {
    /// Computes what is asked for and writes the page.
    pub fn run(self) -> Result<(), Failure> {
        let wanted = |what| self.what.is_empty() || self.what.contains(&what);
        let scale = self.scale()?;
        let usual = if self.quick { "reproduce-quick" } else { "reproduce" };
        let out = self.out.clone().unwrap_or_else(|| PathBuf::from(usual));
        let mut laboratory = Laboratory::new(
            out.join("cells"),
            self.data_dir.clone(),
            self.threads,
            self.only.clone(),
            self.quiet,
        )?;
        let mut sections: Vec<(&'static str, Section)> = Vec::new();
        if wanted(What::Table1) {
            sections.push(("table1", guarantees::table1(self.quick)?));
        }
        if wanted(What::Table2) {
            sections.push(("table2", guarantees::table2(self.quick)?));
        }
        let accuracies = [What::Table3, What::Figure1, What::Why, What::Beyond];
        if accuracies.into_iter().any(wanted) {
            // What only needs the grid takes it as far as it is, and shows it if there is something.
            let grid = wanted(What::Table3) || wanted(What::Figure1);
            laboratory.frozen = !grid;
            let cells = panels::run(&mut laboratory, &scale, wanted(What::Table3))?;
            laboratory.frozen = false;
            if grid || cells.iter().any(|cell| cell.outcome.is_some()) {
                sections.push(("table3", accuracy::table3(&cells, &scale)?));
                sections.push(("figure1", accuracy::figure1(&cells, &scale)));
            }
            if wanted(What::Why) {
                sections.push(("why", why::run(&mut laboratory, &cells, &scale)?));
            }
            if wanted(What::Beyond) {
                sections.push(("beyond", beyond::run(&mut laboratory, &cells, &scale)?));
            }
        }
        laboratory.progress.finish();
        for only in laboratory.unknown().filter(|only| *only != NOTHING) {
            tell(&format!("--only {only}: no experiment of these parts has a name that begins so"));
        }
        let page = page::write(&out, sections, &scale)?;
        print(&format!("wrote {}\n", page.display()))
    }

    fn scale(&self) -> Result<Scale, Failure> {
        let mut data = Vec::new();
        for name in &self.data {
            match name.parse() {
                Ok(known @ (Known::Mnist | Known::Cifar10)) => {
                    known::find(known, self.data_dir.as_deref())?;
                    data.push(known);
                }
                _ => return Err(Failure::Input(format!("data = {name}: mnist or cifar10"))),
            }
        }
        if data.is_empty() {
            let there = |known: &Known| known::find(*known, self.data_dir.as_deref()).is_ok();
            data.extend([Known::Mnist, Known::Cifar10].into_iter().filter(there));
        }
        let quick = self.quick;
        for (name, epochs) in [("figure-epochs", self.figure_epochs), ("table-epochs", self.table_epochs)] {
            if let Some(epochs) = epochs.filter(|epochs| !(1..=MOST_EPOCHS).contains(epochs)) {
                return Err(Failure::Input(format!("{name} = {epochs}: between 1 and {MOST_EPOCHS}")));
            }
        }
        if let Some(threads) = self.threads.filter(|threads| !(1..=MOST_THREADS).contains(threads)) {
            return Err(Failure::Input(format!("threads = {threads}: between 1 and {MOST_THREADS}")));
        }
        if i64::try_from(self.seed).is_err() {
            return Err(Failure::Input(format!("seed = {}: at most {}", self.seed, i64::MAX)));
        }
        Ok(Scale {
            data,
            batches: if quick { QUICK_BATCHES.to_vec() } else { BATCHES.to_vec() },
            figure_epochs: self.figure_epochs.unwrap_or(if quick { 2 } else { 20 }),
            table_epochs: self.table_epochs.unwrap_or(if quick { 3 } else { 100 }),
            part: if quick { Part::First(QUICK_SAMPLES) } else { Part::All },
            quick,
            seed: self.seed,
        })
    }
}
