//! Why Algorithm 1 as printed does not reach the paper's accuracies: the same runs with less noise, to tell
//! the possible readings of "σ = 2" apart, and with every C, to rule out that the choice of C is the reason.

mod show;
mod sweep;

use dpsgd::Error;
use dpsgd_data::Known;
use dpsgd_privacy::mechanism::SamplingKind;
use dpsgd_report::text::number;

use crate::experiment::{AddedNoise, Clipping, Experiment, paper};
use crate::laboratory::Laboratory;
use crate::panels::{Cell, GridSize};
use crate::progress::Work;
use crate::section::Section;
use crate::store::ExperimentOutcome;
use crate::tuning::{TuningLength, tuned};

/// A reading of the paper.
#[derive(Clone, Copy)]
struct Reading {
    /// What the standard deviation 2Cσ of the noise is multiplied by.
    factor: f64,
    words: &'static str,
    /// Whether it comes near what is printed, and so is continued to E of Table 3.
    near: bool,
}

const READINGS: [Reading; 7] = [
    Reading {
        factor: 1.0,
        words: "as printed: N(0, (2Cσ)²) on the sum of m clipped group results",
        near: false,
    },
    Reading { factor: 0.5, words: "σ in units of C, not 2C", near: false },
    Reading { factor: 0.125, words: "σ = 1/4 instead of 2", near: false },
    Reading {
        factor: 1.0 / 40.0,
        words: "the noise is multiplied by η = 1/40 once more than the gradient",
        near: true,
    },
    Reading {
        factor: 1.0 / 64.0,
        words: "the noise is averaged over the s = 64 samples of a group as well (BC and MC)",
        near: true,
    },
    Reading { factor: 1.0 / 1024.0, words: "hardly any noise", near: false },
    Reading { factor: 0.0, words: "clipping without noise", near: false },
];

impl Reading {
    fn times(&self) -> String {
        match self.factor {
            0.0 | 1.0 => number(self.factor),
            below => format!("1/{}", number(1.0 / below)),
        }
    }

    /// E.
    fn epochs(&self, effort: &GridSize) -> u64 {
        if self.near { effort.table_epochs.max(effort.figure_epochs) } else { effort.figure_epochs }
    }
}

/// The small version has the printed noise, the averaged noise, and none.
fn readings(effort: &GridSize) -> Vec<Reading> {
    let kept = |i: &usize| !effort.quick || [0, 4, 6].contains(i);
    (0..READINGS.len()).filter(kept).map(|i| READINGS[i]).collect()
}

/// The settings that are compared: the smallest batch of each kind of clipping.
fn settings(effort: &GridSize) -> Vec<(Clipping, u64)> {
    let smallest = |clipping| effort.batches(clipping).into_iter().min().map(|batch| (clipping, batch));
    Clipping::ALL.into_iter().filter_map(smallest).collect()
}

/// A run with some noise.
struct Noised {
    clipping: Clipping,
    batch: u64,
    factor: f64,
    clip: f64,
    outcome: ExperimentOutcome,
}

fn name(clipping: Clipping, batch: u64, factor: f64) -> String {
    let noise = if factor > 0.0 { format!("{:.0}th", 1.0 / factor) } else { "zero".to_string() };
    format!("why-mnist-{}-{batch}-{noise}", clipping.short()).to_lowercase()
}

fn experiment(clipping: Clipping, batch: u64, factor: f64, clip: f64, effort: &GridSize) -> Experiment {
    let made = paper(Known::Mnist, SamplingKind::Subsample, clipping, batch, clip, effort.seed);
    let noise = if factor == 1.0 { AddedNoise::Printed } else { AddedNoise::Times(factor) };
    Experiment { noise, part: effort.part, ..made }
}

/// Runs the comparison. The cells of Figure 1 are taken from there.
pub fn run(laboratory: &mut Laboratory<'_>, cells: &[Cell], effort: &GridSize) -> Result<Section, Error> {
    laboratory.progress.plan("The noise", &work(effort));
    let mut found: Vec<Noised> = Vec::new();
    for (clipping, batch) in settings(effort) {
        let printed = cells.iter().find(|cell| {
            (cell.data, cell.sampling, cell.clipping, cell.batch)
                == (Known::Mnist, SamplingKind::Subsample, Some(clipping), batch)
        });
        let mut clip = 0.1;
        for reading in readings(effort) {
            let factor = reading.factor;
            let printed = printed.and_then(|cell| Some((cell.clip()?, cell.outcome.clone()?)));
            if let (true, Some((with, outcome))) = (factor == 1.0, printed) {
                clip = with;
                found.push(Noised { clipping, batch, factor, clip, outcome });
                continue;
            }
            let name = name(clipping, batch, factor);
            let setting = experiment(clipping, batch, factor, clip, effort);
            let length = TuningLength::of(Known::Mnist, effort.quick);
            let wanted = laboratory.may(&name);
            let Some(best) = tuned(laboratory, &name, &setting, length, clip, wanted)? else { continue };
            clip = best;
            let setting = experiment(clipping, batch, factor, clip, effort);
            if let Some(outcome) = laboratory.run(&name, &setting, reading.epochs(effort))? {
                found.push(Noised { clipping, batch, factor, clip, outcome });
            }
        }
    }
    let swept = sweep::run(laboratory, effort)?;
    show::section(&found, &swept, effort)
}

fn work(effort: &GridSize) -> Vec<Work> {
    let mut work = Vec::new();
    for (clipping, batch) in settings(effort) {
        for reading in &readings(effort)[1..] {
            work.push(Work {
                data: Known::Mnist,
                samples: TuningLength::of(Known::Mnist, effort.quick).work(),
            });
            work.push(Work::of(
                &experiment(clipping, batch, reading.factor, 1.0, effort),
                reading.epochs(effort),
            ));
        }
    }
    work.extend(sweep::work(effort));
    work
}

/// The accuracy in percent, if the run is that long.
fn at(outcome: &ExperimentOutcome, epochs: u64) -> Option<f64> {
    Some(100.0 * outcome.at(epochs)?)
}
