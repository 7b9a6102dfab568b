//! The curves of a run as inline SVG.

use crate::account;
use crate::chart::{Axis, Chart, Dash, Marker, Scale, Series, Stroke};
use crate::curve;
use crate::html::Figure;
use crate::settings::number;
use crate::train::metrics::Epoch;
use crate::{Failure, statement};

/// The plots of the small charts: two fit side by side.
const SMALL: (f64, f64) = (390.0, 240.0);
/// The plot of the trade-off function.
const SQUARE: (f64, f64) = (470.0, 470.0);

/// The curves over the epochs, as far as there are any.
pub fn over_time(metrics: &[Epoch]) -> Vec<Figure> {
    if metrics.is_empty() {
        return Vec::new();
    }
    let line = |value: &dyn Fn(&Epoch) -> Option<f64>| -> Vec<(f64, f64)> {
        metrics.iter().filter_map(|epoch| Some((epoch.epoch, value(epoch)?))).collect()
    };
    let mut figures = Vec::new();
    let accuracy = line(&|epoch| Some(100.0 * epoch.test_accuracy?));
    if let Some(last) = accuracy.last() {
        let caption = format!("Share of the test set predicted correctly: {:.2} % at the end.", last.1);
        figures.push(small("Test accuracy", "accuracy, %", (accuracy, 0), None, caption));
    }
    let loss = line(&|epoch| Some(epoch.test_loss));
    figures.push(small(
        "Test loss",
        "mean loss",
        (loss, 1),
        None,
        "Mean loss on the test set; never the loss on the private data.".into(),
    ));
    let clipped = line(&|epoch| Some(100.0 * epoch.test_clipping_fraction));
    figures.push(small(
        "Clipping fraction (test set)",
        "clipped, %",
        (clipped, 2),
        Some((0.0, 100.0)),
        "Share of single test samples whose gradient is longer than C, and would be clipped.".into(),
    ));
    // Nothing is spent before the first round, unless something was released before it.
    let spent = line(&|epoch| Some(epoch.epsilon));
    let (delta, adversary) = metrics.last().map_or((0.0, ""), |last| (last.delta, &last.adversary));
    figures.push(small(
        "Privacy spent",
        "ε so far",
        (spent, 3),
        None,
        format!(
            "Certified ε at δ = {} against {} of the rounds until then.",
            number(delta),
            lowered(adversary)
        ),
    ));
    figures
}

fn lowered(adversary: &str) -> &'static str {
    if adversary == "A1" {
        statement::subscript(dpsgd_privacy::Adversary::A1)
    } else {
        statement::subscript(dpsgd_privacy::Adversary::A0)
    }
}

fn small(
    title: &str,
    label: &str,
    (points, colour): (Vec<(f64, f64)>, usize),
    range: Option<(f64, f64)>,
    caption: String,
) -> Figure {
    let marker = (points.len() <= 30).then_some(Marker::Circle);
    let last = points.iter().map(|point| point.0).fold(1.0, f64::max);
    let chart = Chart {
        title: title.to_string(),
        subtitle: None,
        x: Axis { label: "epoch".into(), scale: Scale::Linear, range: Some((0.0, last)) },
        y: Axis { label: label.to_string(), scale: Scale::Linear, range },
        series: vec![Series {
            label: String::new(),
            points,
            stroke: Stroke { colour, dash: Dash::Solid, width: 2.2, marker },
        }],
        bands: Vec::new(),
    };
    Figure::new(&chart, SMALL, caption)
}

/// The trade-off functions against both adversaries.
pub fn tradeoff(report: &account::Report) -> Result<Figure, Failure> {
    let mut chart = curve::of_run(&report.run)?;
    chart.title = "The errors of the best possible attack".to_string();
    chart.subtitle = None;
    let caption = "Every attack that tells the two neighbouring data sets apart makes errors on or above the \
         curve: false alarms to the right, misses upwards. The closer the curve is to the dashed \
         diagonal of a blind guess, the less the run leaks.";
    Ok(Figure::new(&chart, SQUARE, caption))
}
