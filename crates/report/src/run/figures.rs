//! The charts of a run.

use dpsgd_privacy::{Account, Adversary, PrivacyError};

use super::page::Baseline;
use super::{Measurement, TwoClasses};
use crate::chart::{Axis, Chart, Dash, GREY, Marker, Scale, Series, Stroke};
use crate::curve::{CurveRun, Tradeoff};
use crate::html::Figure;
use crate::text::{number, subscript};

/// The plots of the charts over time: two fit side by side.
const SMALL: (f64, f64) = (390.0, 240.0);
/// The plots of the trade-off functions.
const SQUARE: (f64, f64) = (390.0, 390.0);
/// Below this number of points a line does not show them all.
const FEW: usize = 3;

/// A loss beyond this is a damaged file's, not a baseline.
const LARGEST_LOSS: f64 = 1e9;

type Line = Vec<(f64, f64)>;

/// One chart over the epochs.
struct OverTime {
    title: &'static str,
    y: Axis,
    line: Line,
    colour: usize,
    /// The value that a model without inputs would reach, and what to call it.
    baseline: Option<(f64, String)>,
    caption: String,
}

/// The curves over the epochs, as far as there are any. `from_zero` if nothing was spent before the first
/// round.
pub fn over_time(metrics: &[Measurement], baseline: Option<Baseline>, from_zero: bool) -> Vec<Figure> {
    if metrics.is_empty() {
        return Vec::new();
    }
    let line = |value: &dyn Fn(&Measurement) -> Option<f64>| -> Line {
        metrics.iter().filter_map(|epoch| Some((epoch.epoch, value(epoch)?))).collect()
    };
    let mut figures = Vec::new();
    let accuracy = line(&|epoch| Some(100.0 * epoch.test_accuracy?));
    if let Some(last) = accuracy.last() {
        let constant = baseline.and_then(|baseline| baseline.percent());
        figures.push(OverTime {
            title: "Test accuracy",
            y: percent_axis("accuracy, %", accuracy.iter().map(|point| point.1).chain(constant)),
            colour: 0,
            baseline: constant.map(|value| (value, format!("always the most common class: {value:.2} %"))),
            caption: format!("Share of the test set predicted correctly: {:.2} % at the end.", last.1),
            line: accuracy,
        });
    }
    let constant = baseline.and_then(|baseline| baseline.loss).filter(|loss| loss.abs() < LARGEST_LOSS);
    let auc = line(&|epoch| Some(epoch.two_classes?.auc));
    if let Some(last) = auc.last() {
        figures.push(OverTime {
            title: "Test AUC",
            y: Axis { label: "AUC".into(), scale: Scale::Linear, range: Some((auc_floor(&auc), 1.0)) },
            colour: 4,
            baseline: Some((0.5, "any constant: 0.5".into())),
            caption: format!(
                "How often a random sample of class 1 gets a higher probability than one of class 0: {:.4} \
                 at the end.",
                last.1
            ),
            line: auc,
        });
    }
    // Without a test set there is nothing but the privacy to draw.
    let measured = metrics.iter().any(|epoch| !epoch.test_loss.is_nan());
    if !measured {
        let spent = spent(metrics, line(&|epoch| Some(epoch.epsilon)), from_zero);
        return vec![spent.figure()];
    }
    figures.push(OverTime {
        title: "Test loss",
        y: Axis { label: "mean loss".into(), scale: Scale::Linear, range: None },
        line: line(&|epoch| Some(epoch.test_loss)),
        colour: 1,
        baseline: constant.map(|value| (value, format!("best constant prediction: {value:.4}"))),
        caption: "Mean loss on the test set, not on the private data.".into(),
    });
    figures.push(OverTime {
        title: "Clipping fraction (test set)",
        y: Axis { label: "clipped, %".into(), scale: Scale::Linear, range: Some((0.0, 100.0)) },
        line: line(&|epoch| Some(100.0 * epoch.test_clipping_fraction)),
        colour: 2,
        baseline: None,
        caption: "Share of single test samples whose gradient is longer than C and would be clipped.".into(),
    });
    figures.push(spent(metrics, line(&|epoch| Some(epoch.epsilon)), from_zero));
    figures.into_iter().map(OverTime::figure).collect()
}

/// The lower end of an axis of AUCs: below ½ only where there are such values.
fn auc_floor(line: &Line) -> f64 {
    let lowest = line.iter().map(|point| point.1).filter(|value| value.is_finite()).fold(0.5, f64::min);
    ((10.0 * lowest).floor() / 10.0).clamp(0.0, 0.5)
}

/// Predicted and observed shares of class 1, tenth by tenth.
pub fn calibration(seen: &TwoClasses) -> Figure {
    let points: Line = seen.calibration.iter().map(|tenth| (tenth.predicted, tenth.observed)).collect();
    let largest = points.iter().flat_map(|point| [point.0, point.1]).fold(0.0, f64::max);
    let axis = |label: &str| Axis::from_zero(label, [largest].into_iter());
    let (x, y) = (axis("predicted share of class 1"), axis("observed share"));
    let end = x.range.map_or(1.0, |range| range.1);
    let diagonal = Stroke { colour: GREY, dash: Dash::Dashed, width: 1.4, marker: None };
    let stroke = Stroke { colour: 0, dash: Dash::Solid, width: 2.2, marker: Some(Marker::Circle) };
    let chart = Chart {
        title: "Calibration".into(),
        subtitle: None,
        x,
        y,
        series: vec![
            Series { label: "perfect".into(), points: vec![(0.0, 0.0), (end, end)], stroke: diagonal },
            Series { label: "this model".into(), points, stroke },
        ],
        bands: Vec::new(),
    };
    let caption = format!(
        "The test set by rising probability, in ten groups of equal size: the mean probability, and the \
         share that is of class 1. They differ by {:.4} on average.",
        seen.calibration_error()
    );
    Figure::new(&chart, SMALL, caption)
}

fn spent(metrics: &[Measurement], mut line: Line, from_zero: bool) -> OverTime {
    if from_zero {
        line.insert(0, (0.0, 0.0));
    }
    let (delta, adversary) = metrics.last().map_or((0.0, ""), |last| (last.delta, &last.adversary));
    let who = subscript(if adversary == "A1" { Adversary::A1 } else { Adversary::A0 });
    OverTime {
        title: "Privacy spent",
        y: Axis::from_zero("ε so far", line.iter().map(|point| point.1)),
        line,
        colour: 3,
        baseline: None,
        caption: format!("Certified ε at δ = {} against {who}, of all rounds so far.", number(delta)),
    }
}

/// Tens of percent around the values, and nothing beyond 0 and 100.
fn percent_axis(label: &str, values: impl Iterator<Item = f64>) -> Axis {
    let (low, high) = values
        .filter(|value| value.is_finite())
        .fold((100.0_f64, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    let low = (10.0 * (low / 10.0).floor()).clamp(0.0, 90.0);
    let high = (10.0 * (high / 10.0).ceil()).clamp(low + 10.0, 100.0);
    Axis { label: label.to_string(), scale: Scale::Linear, range: Some((low, high)) }
}

impl OverTime {
    fn figure(self) -> Figure {
        let last = self.line.iter().map(|point| point.0).fold(1.0, f64::max);
        let marker = (self.line.len() < FEW).then_some(Marker::Circle);
        let mut series = Vec::new();
        if let Some((value, label)) = self.baseline {
            let stroke = Stroke { colour: GREY, dash: Dash::Dashed, width: 1.4, marker: None };
            series.push(Series { label, points: vec![(0.0, value), (last, value)], stroke });
        }
        let stroke = Stroke { colour: self.colour, dash: Dash::Solid, width: 2.2, marker };
        series.push(Series { label: String::new(), points: self.line, stroke });
        let chart = Chart {
            title: self.title.to_string(),
            subtitle: None,
            x: Axis { label: "epoch".into(), scale: Scale::Linear, range: Some((0.0, last)) },
            y: self.y,
            series,
            bands: Vec::new(),
        };
        Figure::new(&chart, SMALL, self.caption)
    }
}

/// The trade-off functions against both adversaries: as they are, and where false alarms are rare.
pub fn tradeoff(account: &Account) -> Result<Vec<Figure>, PrivacyError> {
    let alphas = crate::reported_alphas(account);
    let run = CurveRun {
        name: String::new(),
        mechanism: &account.mechanism,
        question: account.question,
        alphas: &alphas,
    };
    let mut drawn = Tradeoff::of(&[run])?;
    drawn.linear.subtitle = None;
    drawn.logarithmic.subtitle = None;
    let linear = "Every attack that tries to tell two neighbouring data sets apart has error rates on or \
         above its curve. The closer the curve is to the diagonal of a random guess, the less the run leaks.";
    let logarithmic = "The same curves on logarithmic axes: what an attack detects, at most, if it may raise \
         few false alarms. The diagonal is again the random guess.";
    Ok(vec![Figure::new(&drawn.linear, SQUARE, linear), Figure::new(&drawn.logarithmic, SQUARE, logarithmic)])
}
