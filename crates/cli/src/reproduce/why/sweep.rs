//! Batch clipping with the printed noise and every C. C is chosen on short runs everywhere else; here it is chosen on
//! the runs themselves, in favour of the paper: the best of them, by the test set, go on to E of Table 3.

use serde_json::json;

use super::{at, experiment};
use crate::Failure;
use crate::chart::{Axis, Chart, Dash, Marker, Scale as AxisScale, Series, Stroke};
use crate::html::Figure;
use crate::reproduce::experiment::Clipping;
use crate::reproduce::laboratory::Laboratory;
use crate::reproduce::panels::Scale;
use crate::reproduce::progress::Work;
use crate::reproduce::section::Csv;
use crate::reproduce::store::Outcome;
use crate::reproduce::tuning::rung;
use crate::settings::number;

/// A run with some C.
pub struct Swept {
    batch: u64,
    clip: f64,
    outcome: Outcome,
}

/// How many go on to E of Table 3.
const LONGER: usize = 2;

fn clips(scale: &Scale) -> Vec<f64> {
    if scale.quick { vec![0.01, 0.03, 0.1] } else { (-6..=1).map(rung).collect() }
}

fn batch(scale: &Scale) -> u64 {
    scale.batches(Clipping::Batch).into_iter().min().unwrap_or(64)
}

/// The E that are shown.
fn lengths(scale: &Scale) -> Vec<u64> {
    let mut lengths = vec![scale.figure_epochs, scale.table_epochs];
    lengths.dedup();
    lengths
}

/// Runs all, then the best of them longer.
pub fn run(laboratory: &mut Laboratory, scale: &Scale) -> Result<Vec<Swept>, Failure> {
    let batch = batch(scale);
    let mut run = |clip: f64, epochs: u64| {
        let name = format!("why-mnist-bc-{batch}-c{}", number(clip));
        laboratory.run(&name, &experiment(Clipping::Batch, batch, 1.0, clip, scale), epochs)
    };
    let mut swept = Vec::new();
    for clip in clips(scale) {
        swept.extend(run(clip, scale.figure_epochs)?.map(|outcome| Swept { batch, clip, outcome }));
    }
    let mut order: Vec<(f64, usize)> = swept
        .iter()
        .enumerate()
        .filter_map(|(i, one)| Some((at(&one.outcome, scale.figure_epochs)?, i)))
        .collect();
    // The best of some need not be the best of all.
    if order.len() == clips(scale).len() {
        order.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        for (_, i) in order.into_iter().take(LONGER) {
            if let Some(outcome) = run(swept[i].clip, scale.table_epochs)? {
                swept[i].outcome = outcome;
            }
        }
    }
    Ok(swept)
}

/// What that is likely to take.
pub fn work(scale: &Scale) -> Vec<Work> {
    let of = |epochs| Work::of(&experiment(Clipping::Batch, batch(scale), 1.0, 1.0, scale), epochs);
    let more = scale.table_epochs.saturating_sub(scale.figure_epochs);
    let all = clips(scale).into_iter().map(|_| of(scale.figure_epochs));
    all.chain((0..LONGER).map(|_| of(more))).collect()
}

/// Adds the accuracies to a table.
pub fn list(swept: &[Swept], scale: &Scale, csv: &mut Csv) {
    for one in swept {
        for epochs in lengths(scale) {
            let Some(accuracy) = at(&one.outcome, epochs) else { continue };
            csv.object(&json!({
                "experiment": "clip", "clipping": Clipping::Batch.short(), "batch": one.batch,
                "noise_factor": 1.0, "clip": one.clip, "epochs": epochs, "accuracy_percent": accuracy,
            }));
        }
    }
}

/// Accuracy against C; nothing if nothing was computed.
pub fn figure(swept: &[Swept], scale: &Scale) -> Option<Figure> {
    let mut series = Vec::new();
    for (i, epochs) in lengths(scale).into_iter().enumerate() {
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
        x: Axis { label: "C".into(), scale: AxisScale::Log10, range: None },
        y: Axis { label: "test accuracy, %".into(), scale: AxisScale::Linear, range: Some((0.0, 100.0)) },
        series,
        bands: Vec::new(),
    };
    let words = format!(
        "Batch clipping, |S_b| = {}, with the printed noise at every C; the {LONGER} best C, by these very test accuracies, \
         at E = {} too.",
        batch(scale),
        scale.table_epochs
    );
    Some(Figure::new(&chart, (390.0, 240.0), words))
}
