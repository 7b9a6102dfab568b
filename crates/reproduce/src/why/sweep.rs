//! Batch clipping with the printed noise and every C. Everywhere else C is chosen on short runs; here it is
//! chosen on the runs themselves, in favour of the paper: those with the best test accuracy are continued to
//! E of Table 3.

use dpsgd::Error;
use dpsgd_report::chart::{Axis, Chart, Dash, Marker, Scale, Series, Stroke};
use dpsgd_report::html::Figure;
use dpsgd_report::text::number;
use serde_json::json;

use super::{at, experiment};
use crate::experiment::Clipping;
use crate::laboratory::Laboratory;
use crate::panels::GridSize;
use crate::progress::Work;
use crate::section::Csv;
use crate::store::ExperimentOutcome;
use crate::tuning::rung;

/// A run with some C.
pub struct Swept {
    batch: u64,
    clip: f64,
    outcome: ExperimentOutcome,
}

/// How many are continued to E of Table 3.
const LONGER: usize = 2;

fn clips(effort: &GridSize) -> Vec<f64> {
    if effort.quick { vec![0.01, 0.03, 0.1] } else { (-6..=1).map(rung).collect() }
}

fn batch(effort: &GridSize) -> u64 {
    effort.batches(Clipping::Batch).into_iter().min().unwrap_or(64)
}

/// The E that are shown.
fn lengths(effort: &GridSize) -> Vec<u64> {
    let mut lengths = vec![effort.figure_epochs, effort.table_epochs];
    lengths.dedup();
    lengths
}

/// Runs all, then the best of them longer.
pub fn run(laboratory: &mut Laboratory<'_>, effort: &GridSize) -> Result<Vec<Swept>, Error> {
    let batch = batch(effort);
    let mut run = |clip: f64, epochs: u64| {
        let name = format!("why-mnist-bc-{batch}-c{}", number(clip));
        laboratory.run(&name, &experiment(Clipping::Batch, batch, 1.0, clip, effort), epochs)
    };
    let mut swept = Vec::new();
    for clip in clips(effort) {
        swept.extend(run(clip, effort.figure_epochs)?.map(|outcome| Swept { batch, clip, outcome }));
    }
    let mut order: Vec<(f64, usize)> = swept
        .iter()
        .enumerate()
        .filter_map(|(i, one)| Some((at(&one.outcome, effort.figure_epochs)?, i)))
        .collect();
    // Before all are there, the best of them need not be the best of all.
    if order.len() == clips(effort).len() {
        order.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        for (_, i) in order.into_iter().take(LONGER) {
            if let Some(outcome) = run(swept[i].clip, effort.table_epochs)? {
                swept[i].outcome = outcome;
            }
        }
    }
    Ok(swept)
}

/// The work it is likely to take.
pub fn work(effort: &GridSize) -> Vec<Work> {
    let of = |epochs| Work::of(&experiment(Clipping::Batch, batch(effort), 1.0, 1.0, effort), epochs);
    let more = effort.table_epochs.saturating_sub(effort.figure_epochs);
    let all = clips(effort).into_iter().map(|_| of(effort.figure_epochs));
    all.chain((0..LONGER).map(|_| of(more))).collect()
}

/// Adds the accuracies to a table.
pub fn list(swept: &[Swept], effort: &GridSize, csv: &mut Csv) {
    for one in swept {
        for epochs in lengths(effort) {
            let Some(accuracy) = at(&one.outcome, epochs) else { continue };
            csv.object(json!({
                "experiment": "clip", "clipping": Clipping::Batch.short(), "batch": one.batch,
                "noise_factor": 1.0, "clip": one.clip, "epochs": epochs, "accuracy_percent": accuracy,
            }));
        }
    }
}

/// Accuracy against C; nothing if nothing was computed.
pub fn figure(swept: &[Swept], effort: &GridSize) -> Option<Figure> {
    let mut series = Vec::new();
    for (i, epochs) in lengths(effort).into_iter().enumerate() {
        let points: Vec<(f64, f64)> =
            swept.iter().filter_map(|one| Some((one.clip, at(&one.outcome, epochs)?))).collect();
        let marker = [Marker::Square, Marker::Circle][i];
        let stroke = Stroke { colour: 1 + i, dash: Dash::Solid, width: 1.8, marker: Some(marker) };
        if !points.is_empty() {
            series.push(Series { label: format!("E = {epochs}"), points, stroke });
        }
    }
    if series.is_empty() {
        return None;
    }
    let chart = Chart {
        title: "Batch clipping as printed, and C".into(),
        subtitle: None,
        x: Axis { label: "C".into(), scale: Scale::Log10, range: None },
        y: Axis { label: "test accuracy, %".into(), scale: Scale::Linear, range: Some((0.0, 100.0)) },
        series,
        bands: Vec::new(),
    };
    let words = format!(
        "Batch clipping, |S_b| = {}, with the printed noise at every C; the {LONGER} best C, by these same \
         test accuracies, at E = {} too.",
        batch(effort),
        effort.table_epochs
    );
    Some(Figure::new(&chart, (390.0, 240.0), words))
}
