//! Every table and figure of “Generalizing DP-SGD with Shuffling and Batch Clipping”, computed anew beside
//! what the paper prints.
//!
//! ```no_run
//! use dpsgd_reproduce::{Options, Part, Silent};
//!
//! let options = Options { what: vec![Part::Table1, Part::Table2], quick: true, ..Options::default() };
//! let page = dpsgd_reproduce::run(&options, &mut Silent)?;
//! println!("wrote {}", page.display());
//! # Ok::<(), dpsgd::Error>(())
//! ```
//!
//! The library reads the data sets, writes below [`Options::out`] and prints nothing; progress is reported to
//! a [`Watch`]. Experiments are saved every twenty seconds or so, and a later call resumes them.
//!
//! [`speed`] measures how fast a training round is.
//!
//! Nothing here is private: the data are public and every run has a seed.

mod accuracy;
mod altered;
mod beyond;
mod error;
mod experiment;
mod guarantees;
mod laboratory;
mod page;
mod panels;
mod printed;
mod progress;
mod section;
pub mod speed;
mod stated;
mod store;
mod tuning;
mod why;

use std::path::PathBuf;

use dpsgd::Error;
use dpsgd_data::{Known, known};
use dpsgd_train::plan::MOST_THREADS;

use self::experiment::Portion;
use self::laboratory::Laboratory;
use self::panels::GridSize;
use self::section::Section;

pub use self::progress::{EpochDone, Silent, Watch};

/// What is reproduced, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The parts of the paper; everything if there are none.
    pub what: Vec<Part>,
    /// A small version that takes minutes: few runs, samples and epochs.
    pub quick: bool,
    /// The data sets, MNIST and CIFAR-10; those that are found if there are none.
    pub data: Vec<Known>,
    /// Where the data sets are, if not in the usual places.
    pub data_dir: Option<PathBuf>,
    /// E of Figure 1; 20 if not given, or 2 in the small version.
    pub figure_epochs: Option<u64>,
    /// E of Table 3; 100 if not given, or 3 in the small version.
    pub table_epochs: Option<u64>,
    /// Compute only experiments whose names begin with one of these, and show the others as far as they were
    /// computed before. `nothing` computes none.
    pub only: Vec<String>,
    /// Everything is drawn from this number.
    pub seed: u64,
    /// Threads, all cores if not given; the result does not depend on it.
    pub threads: Option<usize>,
    /// The directory of everything that is written; `reproduce` if not given, or `reproduce-quick`.
    pub out: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            what: Vec::new(),
            quick: false,
            data: Vec::new(),
            data_dir: None,
            figure_epochs: None,
            table_epochs: None,
            only: Vec::new(),
            seed: 1,
            threads: None,
            out: None,
        }
    }
}

/// A part of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Part {
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

impl Part {
    /// All of them, in the order of the page.
    pub const ALL: [Part; 6] =
        [Part::Table1, Part::Table2, Part::Table3, Part::Figure1, Part::Why, Part::Beyond];

    /// The name on the command line and in file names.
    pub const fn name(self) -> &'static str {
        match self {
            Part::Table1 => "table1",
            Part::Table2 => "table2",
            Part::Table3 => "table3",
            Part::Figure1 => "figure1",
            Part::Why => "why",
            Part::Beyond => "beyond",
        }
    }
}

/// In [`Options::only`], the name of no experiment.
const NOTHING: &str = "nothing";
/// The most epochs of a run.
const MOST_EPOCHS: u64 = 10_000;
/// |S_b| of the paper, and of the small version.
const BATCHES: [u64; 5] = [64, 128, 256, 512, 1024];
const QUICK_BATCHES: [u64; 2] = [128, 1024];
/// The training samples of the small version.
const QUICK_SAMPLES: u64 = 6_000;

/// Computes what is asked for and writes the page; returns its path.
///
/// Parts that an earlier call wrote to the same directory stay on the page.
pub fn run(options: &Options, watch: &mut dyn Watch) -> Result<PathBuf, Error> {
    let wanted = |part: Part| options.what.is_empty() || options.what.contains(&part);
    let effort = options.effort()?;
    let usual = if options.quick { "reproduce-quick" } else { "reproduce" };
    let out = options.out.clone().unwrap_or_else(|| PathBuf::from(usual));
    let mut laboratory = Laboratory::new(out.join("cells"), options, watch)?;
    let mut sections: Vec<(Part, Section)> = Vec::new();
    if wanted(Part::Table1) {
        sections.push((Part::Table1, guarantees::table1(options.quick)?));
    }
    if wanted(Part::Table2) {
        sections.push((Part::Table2, guarantees::table2(options.quick)?));
    }
    if [Part::Table3, Part::Figure1, Part::Why, Part::Beyond].into_iter().any(wanted) {
        accuracies(&mut laboratory, &effort, wanted, &mut sections)?;
    }
    laboratory.progress.finish();
    let unknown: Vec<String> =
        laboratory.unknown().filter(|only| *only != NOTHING).map(str::to_string).collect();
    for only in unknown {
        laboratory.progress.line(&format!("only = {only}: no experiment of these parts has such a name"));
    }
    page::write(&out, sections, &effort)
}

/// The parts that train.
fn accuracies(
    laboratory: &mut Laboratory<'_>,
    effort: &GridSize,
    wanted: impl Fn(Part) -> bool,
    sections: &mut Vec<(Part, Section)>,
) -> Result<(), Error> {
    // A part that only reads the grid takes it as it is, and shows it if there is anything in it.
    let grid = wanted(Part::Table3) || wanted(Part::Figure1);
    laboratory.frozen = !grid;
    let cells = panels::run(laboratory, effort, wanted(Part::Table3))?;
    laboratory.frozen = false;
    if grid || cells.iter().any(|cell| cell.outcome.is_some()) {
        sections.push((Part::Table3, accuracy::table3(&cells, effort)?));
        sections.push((Part::Figure1, accuracy::figure1(&cells, effort)?));
    }
    if wanted(Part::Why) {
        sections.push((Part::Why, why::run(laboratory, &cells, effort)?));
    }
    if wanted(Part::Beyond) {
        sections.push((Part::Beyond, beyond::run(laboratory, &cells, effort)?));
    }
    Ok(())
}

fn refuse<T>(message: String) -> Result<T, Error> {
    Err(Error::Refused(message))
}

impl Options {
    /// How much is computed, checked.
    fn effort(&self) -> Result<GridSize, Error> {
        let find = |data: Known| known::find(data, self.data_dir.as_deref());
        for &data in &self.data {
            if ![Known::Mnist, Known::Cifar10].contains(&data) {
                return refuse(format!("data = {data}: mnist or cifar10"));
            }
            find(data)?;
        }
        for (name, epochs) in [("figure-epochs", self.figure_epochs), ("table-epochs", self.table_epochs)] {
            if let Some(epochs) = epochs.filter(|epochs| !(1..=MOST_EPOCHS).contains(epochs)) {
                return refuse(format!("{name} = {epochs}: between 1 and {MOST_EPOCHS}"));
            }
        }
        if let Some(threads) = self.threads.filter(|threads| !(1..=MOST_THREADS).contains(threads)) {
            return refuse(format!("threads = {threads}: between 1 and {MOST_THREADS}"));
        }
        if i64::try_from(self.seed).is_err() {
            return refuse(format!("seed = {}: at most {}", self.seed, i64::MAX));
        }
        let mut data = self.data.clone();
        if data.is_empty() {
            data.extend([Known::Mnist, Known::Cifar10].into_iter().filter(|&data| find(data).is_ok()));
        }
        let quick = self.quick;
        Ok(GridSize {
            data,
            batches: if quick { QUICK_BATCHES.to_vec() } else { BATCHES.to_vec() },
            figure_epochs: self.figure_epochs.unwrap_or(if quick { 2 } else { 20 }),
            table_epochs: self.table_epochs.unwrap_or(if quick { 3 } else { 100 }),
            part: if quick { Portion::First(QUICK_SAMPLES) } else { Portion::All },
            quick,
            seed: self.seed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let refused = |options: Options| options.effort().unwrap_err().to_string();
        let with = |change: fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            refused(options)
        };
        assert_eq!(with(|all| all.data = vec![Known::Adult]), "data = adult: mnist or cifar10");
        assert_eq!(with(|all| all.figure_epochs = Some(0)), "figure-epochs = 0: between 1 and 10000");
        assert_eq!(with(|all| all.threads = Some(0)), "threads = 0: between 1 and 1024");
        assert!(with(|all| all.seed = u64::MAX).starts_with("seed = 18446744073709551615: at most"));
    }
}
