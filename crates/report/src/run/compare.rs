//! Several runs over each other.

use super::Measurement;
use crate::chart::{Axis, BLACK, Chart, Dash, Scale, Series, Stroke};
use crate::html::Figure;

/// The plots: two fit side by side.
const SMALL: (f64, f64) = (390.0, 240.0);

/// The curves of named runs: accuracy or loss, AUC where it is known, and the privacy spent for it.
pub fn compared(runs: &[(String, Vec<Measurement>)]) -> Vec<Figure> {
    let chart = |title: &str, label: &str, value: fn(&Measurement) -> Option<f64>| {
        let mut series = Vec::new();
        for (i, (name, measured)) in runs.iter().enumerate() {
            let points: Vec<(f64, f64)> = measured
                .iter()
                .filter_map(|epoch| Some((epoch.epoch, value(epoch)?)))
                .filter(|point| point.1.is_finite())
                .collect();
            // Black and grey have other uses.
            let stroke = Stroke { colour: i % BLACK, dash: Dash::Solid, width: 2.0, marker: None };
            if !points.is_empty() {
                series.push(Series { label: name.clone(), points, stroke });
            }
        }
        let x = Axis { label: "epoch".into(), scale: Scale::Linear, range: None };
        let y = Axis { label: label.into(), scale: Scale::Linear, range: None };
        let chart = Chart { title: title.into(), subtitle: None, x, y, series, bands: Vec::new() };
        (!chart.series.is_empty()).then(|| Figure::new(&chart, SMALL, ""))
    };
    let charts = [
        chart("Test accuracy", "accuracy, %", |epoch| epoch.test_accuracy.map(|share| 100.0 * share)),
        chart("Test AUC", "AUC", |epoch| epoch.two_classes.map(|two| two.auc)),
        chart("Test loss", "mean loss", |epoch| Some(epoch.test_loss)),
        chart("Privacy spent", "ε so far", |epoch| Some(epoch.epsilon)),
    ];
    charts.into_iter().flatten().collect()
}
