//! `dpsgd bench`: how fast a round is, as JSON lines.

use clap::Args;
use dpsgd_reproduce::speed::{self, SpeedOptions};

use crate::failure::Failure;
use crate::print;

/// The flags of `dpsgd bench`.
#[derive(Args)]
#[command(after_help = "\
Methods: individual (s = 1), mixed (groups of 8), batch (one group), plain (not private: no clip, noise or \
ledger), and the inner algorithms sgd, momentum, adam, adagrad, rmsprop on groups of at most 64. The noise \
is exact; with _fast after the name of a method it is fast.

Example:
  dpsgd bench --net lenet5,paper_cnn --batch 64,512 --clipping individual,batch,mixed --threads 2")]
pub struct BenchCommand {
    /// Networks: lenet5, paper_cnn
    #[arg(long, value_delimiter = ',', default_value = "lenet5,paper_cnn")]
    net: Vec<String>,
    /// Samples a round
    #[arg(long, value_delimiter = ',', default_value = "64,512")]
    batch: Vec<usize>,
    /// What is measured (see below)
    #[arg(long, value_delimiter = ',', default_value = "individual,batch,mixed")]
    clipping: Vec<String>,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Repetitions of each method
    #[arg(long, default_value_t = 5)]
    reps: usize,
    /// Seconds a repetition takes
    #[arg(long, default_value_t = 0.5)]
    slice: f64,
}

impl BenchCommand {
    /// Measures and prints.
    pub fn run(self) -> Result<(), Failure> {
        let options = SpeedOptions {
            net: self.net,
            batch: self.batch,
            clipping: self.clipping,
            threads: self.threads,
            reps: self.reps,
            slice: self.slice,
        };
        let mut printed = Ok(());
        speed::run(&options, &mut |line| {
            if printed.is_ok() {
                printed = print(&format!("{line}\n"));
            }
        })?;
        printed
    }
}
