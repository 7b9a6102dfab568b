//! The comparison as a table and pictures.

use dpsgd::Error;
use dpsgd_data::Known;
use dpsgd_privacy::mechanism::SamplingKind;
use dpsgd_report::chart::{Axis, Chart, Dash, Marker, Scale, Series, Stroke};
use dpsgd_report::html::{self, Figure};
use dpsgd_report::text::number;
use serde_json::json;

use super::sweep::{self, Swept};
use super::{Noised, Reading, at, readings};
use crate::experiment::{Clipping, SIGMA};
use crate::panels::GridSize;
use crate::printed;
use crate::section::{Csv, Section};

/// The section of the page.
pub fn section(found: &[Noised], swept: &[Swept], effort: &GridSize) -> Result<Section, Error> {
    let short = effort.figure_epochs;
    let mut csv =
        Csv::new(&["experiment", "clipping", "batch", "noise_factor", "clip", "epochs", "accuracy_percent"]);
    let readings = readings(effort);
    let shorter = readings.iter().map(|reading| (reading, short));
    // Longer runs are shown if there are any.
    let longer =
        readings.iter().map(|reading| (reading, reading.epochs(effort))).filter(|(reading, epochs)| {
            let there = |one: &Noised| one.factor == reading.factor && at(&one.outcome, *epochs).is_some();
            *epochs > short && found.iter().any(there)
        });
    let mut rows: Vec<Vec<String>> =
        shorter.chain(longer).map(|(reading, epochs)| row(found, reading, epochs, &mut csv)).collect();
    let printed = |clipping| printed::accuracy(Known::Mnist, SamplingKind::Subsample, Some(clipping));
    let mut last = vec!["the paper, best |S_b|".to_string(), String::new(), "100".to_string()];
    last.extend(Clipping::ALL.map(|clipping| number(printed(clipping))));
    rows.push(last);
    sweep::list(swept, effort, &mut csv);
    let words = [
        format!(
            "MNIST, subsampling, the paper's η and rule. Algorithm 1 adds noise of standard deviation 2Cσ/m \
             = {}·C/m to every coordinate of the mean of m group results, each of norm at most C. One \
             round's noise on d coordinates has norm 2Cσ√d/m: for LeNet-5 (d = 61,706) about 1000·C/m. With \
             batch clipping m = 1, whatever |S_b| is.",
            number(2.0 * SIGMA)
        ),
        "Each row multiplies the noise by a factor and chooses C anew for it (on short runs, as for Figure \
         1). A reading of the paper explains its Table 3 only if all three columns come near it. Readings \
         that do are compared with it at the E of Table 3."
            .to_string(),
    ];
    let mut figures = vec![by_noise(found, short)];
    figures.extend(sweep::figure(swept, effort));
    let html = words.iter().map(|said| html::paragraph(said)).collect::<String>()
        + &html::wide_table(&header(found), &rows)
        + &html::figures(&figures);
    Ok(Section {
        title: "Where the printed accuracies come from".into(),
        html,
        csv: vec![csv.file("why.csv")?],
        json: csv.rows(),
    })
}

fn header(found: &[Noised]) -> Vec<String> {
    let batch =
        |clipping: Clipping| found.iter().find(|one| one.clipping == clipping).map_or(0, |one| one.batch);
    let column = |clipping: Clipping| format!("{}, |S_b| = {}, %", clipping.short(), batch(clipping));
    let mut header = ["reading", "noise times", "E"].map(str::to_string).to_vec();
    header.extend(Clipping::ALL.map(column));
    header
}

/// The accuracies of a reading.
fn row(found: &[Noised], reading: &Reading, epochs: u64, csv: &mut Csv) -> Vec<String> {
    let mut row = vec![reading.words.to_string(), reading.times(), epochs.to_string()];
    for clipping in Clipping::ALL {
        let one = found.iter().find(|one| (one.clipping, one.factor) == (clipping, reading.factor));
        let Some((one, accuracy)) = one.and_then(|one| Some((one, at(&one.outcome, epochs)?))) else {
            row.push("not computed".to_string());
            continue;
        };
        row.push(format!("{accuracy:.2} (C = {})", number(one.clip)));
        csv.object(json!({
            "experiment": "noise", "clipping": clipping.short(), "batch": one.batch,
            "noise_factor": reading.factor, "clip": one.clip, "epochs": epochs, "accuracy_percent": accuracy,
        }));
    }
    row
}

/// Accuracy against the noise.
fn by_noise(found: &[Noised], epochs: u64) -> Figure {
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
        x: Axis { label: "noise, times 2Cσ with σ = 2".into(), scale: Scale::Log10, range: None },
        y: Axis { label: "test accuracy, %".into(), scale: Scale::Linear, range: Some((0.0, 100.0)) },
        series,
        bands: Vec::new(),
    };
    Figure::new(
        &chart,
        (390.0, 240.0),
        format!(
            "Accuracy at E = {epochs} with less and less noise, C chosen for each point. Algorithm 1 as \
             printed is at 1."
        ),
    )
}
