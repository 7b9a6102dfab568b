//! Where Algorithm 1 as printed and the paper's accuracies part: the same runs with less noise, so that the possible
//! readings of "σ = 2" can be told apart, and with every C, so that the choice of C cannot be it.

mod sweep;

use dpsgd_data::Known;
use serde_json::json;

use self::sweep::Swept;
use super::experiment::{Clipping, Experiment, Noise, SIGMA, paper};
use super::laboratory::Laboratory;
use super::panels::{Cell, Scale};
use super::printed;
use super::progress::Work;
use super::section::{Csv, Section};
use super::store::Outcome;
use super::tuning::{Length, tuned};
use crate::Failure;
use crate::chart::{Axis, Chart, Dash, Marker, Scale as AxisScale, Series, Stroke};
use crate::html::{self, Figure};
use crate::settings::{SamplingName, number};

/// A reading of the paper.
#[derive(Clone, Copy)]
struct Reading {
    /// What the standard deviation 2Cσ of the noise is multiplied by.
    factor: f64,
    words: &'static str,
    /// Whether it comes near what is printed, and so goes on to E of Table 3.
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
    fn epochs(&self, scale: &Scale) -> u64 {
        if self.near { scale.table_epochs.max(scale.figure_epochs) } else { scale.figure_epochs }
    }
}

/// Those of the small version are the printed noise, that of an averaged one, and none.
fn readings(scale: &Scale) -> Vec<Reading> {
    let kept = |i: &usize| !scale.quick || [0, 4, 6].contains(i);
    (0..READINGS.len()).filter(kept).map(|i| READINGS[i]).collect()
}

/// The settings that are looked into: the smallest batch of each kind of clipping.
fn settings(scale: &Scale) -> Vec<(Clipping, u64)> {
    let smallest = |clipping| scale.batches(clipping).into_iter().min().map(|batch| (clipping, batch));
    Clipping::ALL.into_iter().filter_map(smallest).collect()
}

/// A run with some noise.
struct Altered {
    clipping: Clipping,
    batch: u64,
    factor: f64,
    clip: f64,
    outcome: Outcome,
}

fn name(clipping: Clipping, batch: u64, factor: f64) -> String {
    let noise = if factor > 0.0 { format!("{:.0}th", 1.0 / factor) } else { "zero".to_string() };
    format!("why-mnist-{}-{batch}-{noise}", clipping.short()).to_lowercase()
}

fn experiment(clipping: Clipping, batch: u64, factor: f64, clip: f64, scale: &Scale) -> Experiment {
    let made = paper(Known::Mnist, SamplingName::Subsample, clipping, batch, clip, scale.seed);
    let noise = if factor == 1.0 { Noise::Printed } else { Noise::Times(factor) };
    Experiment { noise, part: scale.part, ..made }
}

/// Runs the comparison. The cells of Figure 1 are taken from there.
pub fn run(laboratory: &mut Laboratory, cells: &[Cell], scale: &Scale) -> Result<Section, Failure> {
    laboratory.progress.plan("The noise", &work(scale));
    let mut found: Vec<Altered> = Vec::new();
    for (clipping, batch) in settings(scale) {
        let printed = cells.iter().find(|cell| {
            (cell.data, cell.sampling, cell.clipping, cell.batch)
                == (Known::Mnist, SamplingName::Subsample, Some(clipping), batch)
        });
        let mut clip = 0.1;
        for reading in readings(scale) {
            let factor = reading.factor;
            let printed = printed.and_then(|cell| Some((cell.clip()?, cell.outcome.clone()?)));
            if let (true, Some((with, outcome))) = (factor == 1.0, printed) {
                clip = with;
                found.push(Altered { clipping, batch, factor, clip, outcome });
                continue;
            }
            let name = name(clipping, batch, factor);
            let setting = experiment(clipping, batch, factor, clip, scale);
            let length = Length::of(Known::Mnist, scale.quick);
            let wanted = laboratory.may(&name);
            let Some(best) = tuned(laboratory, &name, &setting, length, clip, wanted)? else { continue };
            clip = best;
            let setting = experiment(clipping, batch, factor, clip, scale);
            if let Some(outcome) = laboratory.run(&name, &setting, reading.epochs(scale))? {
                found.push(Altered { clipping, batch, factor, clip, outcome });
            }
        }
    }
    let swept = sweep::run(laboratory, scale)?;
    Ok(section(&found, &swept, scale))
}

fn work(scale: &Scale) -> Vec<Work> {
    let mut work = Vec::new();
    for (clipping, batch) in settings(scale) {
        for reading in &readings(scale)[1..] {
            work.push(Work { data: Known::Mnist, samples: Length::of(Known::Mnist, scale.quick).work() });
            work.push(Work::of(
                &experiment(clipping, batch, reading.factor, 1.0, scale),
                reading.epochs(scale),
            ));
        }
    }
    work.extend(sweep::work(scale));
    work
}

/// In percent, if it came so far.
fn at(outcome: &Outcome, epochs: u64) -> Option<f64> {
    Some(100.0 * outcome.at(epochs)?)
}

fn section(found: &[Altered], swept: &[Swept], scale: &Scale) -> Section {
    let short = scale.figure_epochs;
    let mut csv =
        Csv::new(&["experiment", "clipping", "batch", "noise_factor", "clip", "epochs", "accuracy_percent"]);
    let mut rows = Vec::new();
    let readings = readings(scale);
    let shorter = readings.iter().map(|reading| (reading, short));
    // The longer runs are shown where there are some.
    let longer =
        readings.iter().map(|reading| (reading, reading.epochs(scale))).filter(|(reading, epochs)| {
            let there = |one: &Altered| one.factor == reading.factor && at(&one.outcome, *epochs).is_some();
            *epochs > short && found.iter().any(there)
        });
    for (reading, epochs) in shorter.chain(longer) {
        let mut row = vec![reading.words.to_string(), reading.times(), epochs.to_string()];
        for clipping in Clipping::ALL {
            let one = found.iter().find(|one| (one.clipping, one.factor) == (clipping, reading.factor));
            let Some((one, accuracy)) = one.and_then(|one| Some((one, at(&one.outcome, epochs)?))) else {
                row.push("not computed".to_string());
                continue;
            };
            row.push(format!("{accuracy:.2} (C = {})", number(one.clip)));
            csv.object(&json!({
                "experiment": "noise", "clipping": clipping.short(), "batch": one.batch,
                "noise_factor": reading.factor, "clip": one.clip, "epochs": epochs, "accuracy_percent": accuracy,
            }));
        }
        rows.push(row);
    }
    let printed = |clipping| printed::accuracy(Known::Mnist, SamplingName::Subsample, Some(clipping));
    let mut row = vec!["the paper, best |S_b|".to_string(), String::new(), "100".to_string()];
    row.extend(Clipping::ALL.map(|clipping| number(printed(clipping))));
    rows.push(row);
    let batches =
        |clipping: Clipping| found.iter().find(|one| one.clipping == clipping).map_or(0, |one| one.batch);
    let mut header = ["reading", "noise times", "E"].map(str::to_string).to_vec();
    header.extend(
        Clipping::ALL.map(|clipping| format!("{}, |S_b| = {}, %", clipping.short(), batches(clipping))),
    );
    sweep::list(swept, scale, &mut csv);
    let words = [
        format!(
            "MNIST, subsampling, the paper's η and rule. Algorithm 1 adds noise of standard deviation 2Cσ/m = {}·C/m to \
             every coordinate of the mean of m group results, each of norm at most C. One round's noise on d coordinates has norm \
             2Cσ√d/m: for LeNet-5 (d = 61,706) about 1000·C/m. With batch clipping m = 1, whatever |S_b| is.",
            number(2.0 * SIGMA)
        ),
        "Each row multiplies the noise by a factor and chooses C anew for it (on short runs, as for Figure 1). A reading of the paper \
         explains its Table 3 only if all three columns come near. What does so is to be compared with it at the E of Table 3."
            .to_string(),
    ];
    let mut figures = vec![by_noise(found, short)];
    figures.extend(sweep::figure(swept, scale));
    let html = words.iter().map(|said| html::paragraph(said)).collect::<String>()
        + &html::wide_table(&header, &rows)
        + &html::figures(&figures);
    let json = csv.rows();
    Section {
        title: "Where the printed accuracies come from".into(),
        html,
        csv: vec![csv.file("why.csv")],
        json,
    }
}

/// Accuracy against the noise.
fn by_noise(found: &[Altered], epochs: u64) -> Figure {
    let styles = [Marker::Circle, Marker::Square, Marker::Triangle];
    let mut series = Vec::new();
    for (i, clipping) in Clipping::ALL.into_iter().enumerate() {
        let points: Vec<(f64, f64)> = found
            .iter()
            .filter(|one| one.clipping == clipping && one.factor > 0.0)
            .filter_map(|one| Some((one.factor, at(&one.outcome, epochs)?)))
            .collect();
        let stroke = Stroke { colour: i, dash: Dash::Solid, width: 1.8, marker: Some(styles[i]) };
        series.push(Series { label: clipping.short().to_string(), points, stroke });
    }
    let chart = Chart {
        title: "Accuracy and noise".into(),
        subtitle: None,
        x: Axis { label: "noise, times 2Cσ with σ = 2".into(), scale: AxisScale::Log10, range: None },
        y: Axis { label: "test accuracy, %".into(), scale: AxisScale::Linear, range: Some((0.0, 100.0)) },
        series,
        bands: Vec::new(),
    };
    Figure::new(
        &chart,
        (390.0, 240.0),
        format!(
            "Accuracy at E = {epochs} with less and less noise, C chosen for each point. At 1 is Algorithm 1 as printed."
        ),
    )
}
