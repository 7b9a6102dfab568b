//! Table 3 and Figure 1 as tables and pictures.

mod table;

use dpsgd::Error;
use dpsgd_data::Known;
use dpsgd_privacy::mechanism::SamplingKind;
use dpsgd_report::chart::{self, Axis, Chart, Dash, Marker, Scale, Series, Stroke};
use dpsgd_report::html::{self, Figure};
use dpsgd_report::text::number;
use serde_json::json;

pub use self::table::table3;

use crate::experiment::{Clipping, short};
use crate::panels::{Cell, GridSize, SAMPLERS, furthest};
use crate::printed;
use crate::section::{Csv, Section};

/// The plots of the panels: three fit side by side.
const PANEL: (f64, f64) = (250.0, 180.0);

/// The name of a data set as people write it.
pub fn title(data: Known) -> &'static str {
    if data == Known::Cifar10 { "CIFAR-10" } else { "MNIST" }
}

/// Figure 1: the accuracy over the epochs, a panel for each data set, sampler and kind of clipping.
pub fn figure1(cells: &[Cell], effort: &GridSize) -> Result<Section, Error> {
    let mut figures = Vec::new();
    for &data in &effort.data {
        for (sampling, clipping) in
            SAMPLERS.into_iter().flat_map(|sampling| Clipping::ALL.map(|clipping| (sampling, clipping)))
        {
            let panel: Vec<&Cell> = cells
                .iter()
                .filter(|cell| (cell.data, cell.sampling, cell.clipping) == (data, sampling, Some(clipping)))
                .collect();
            let baseline = furthest(cells, data, sampling, None);
            figures.push(figure((data, sampling, clipping), &panel, baseline, effort));
        }
    }
    let words = format!(
        "Test accuracy over the epochs for |S_b| = {}, with σ = 2 and η = 0.025. The dotted line is the \
         accuracy that the paper's Table 3 prints for the panel; the dashed grey one is our mini-batch SGD \
         without privacy.",
        effort.batches.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
    );
    let csv = points(cells);
    Ok(Section {
        title: "Figure 1: accuracy over the epochs".into(),
        html: html::paragraph(&words) + &html::small_figures(&figures),
        csv: vec![csv.file("figure1.csv")?],
        json: csv.rows(),
    })
}

/// Every epoch of every cell.
fn points(cells: &[Cell]) -> Csv {
    let mut csv = Csv::new(&[
        "data",
        "sampling",
        "clipping",
        "batch",
        "clip",
        "epoch",
        "accuracy_percent",
        "loss",
        "step",
        "seconds",
    ]);
    for cell in cells {
        let Some(outcome) = &cell.outcome else { continue };
        for (i, point) in outcome.curve.iter().enumerate() {
            csv.object(json!({
                "data": cell.data.name(),
                "sampling": short(cell.sampling),
                "clipping": cell.clipping.map_or("none", Clipping::short),
                "batch": cell.batch,
                "clip": cell.clip(),
                "epoch": i + 1,
                "accuracy_percent": 100.0 * point.accuracy,
                "loss": point.loss,
                "step": point.step,
                "seconds": point.seconds,
            }));
        }
    }
    csv
}

fn figure(
    (data, sampling, clipping): (Known, SamplingKind, Clipping),
    panel: &[&Cell],
    baseline: Option<&Cell>,
    effort: &GridSize,
) -> Figure {
    let mut series: Vec<Series> =
        panel.iter().copied().chain(baseline).filter_map(|cell| line(cell, effort)).collect();
    let last = series.iter().flat_map(|one| one.points.iter().map(|point| point.0)).fold(2.0, f64::max);
    let printed = printed::accuracy(data, sampling, Some(clipping));
    series.push(Series {
        label: format!("paper: {printed} %"),
        points: vec![(0.0, printed), (last, printed)],
        stroke: Stroke { colour: chart::BLACK, dash: Dash::Dotted, width: 1.4, marker: None },
    });
    let chart = Chart {
        title: format!("{}, {}, {}", title(data), short(sampling), clipping.short()),
        subtitle: None,
        x: Axis { label: "epoch".into(), scale: Scale::Linear, range: Some((0.0, last)) },
        y: Axis { label: "test accuracy, %".into(), scale: Scale::Linear, range: Some((0.0, 100.0)) },
        series,
        bands: Vec::new(),
    };
    Figure::new(&chart, PANEL, "")
}

/// The accuracies of a cell, if it was computed.
fn line(cell: &Cell, effort: &GridSize) -> Option<Series> {
    let markers = [Marker::Circle, Marker::Square, Marker::Triangle, Marker::Diamond, Marker::TriangleDown];
    let dashes = [Dash::Solid, Dash::Dashed, Dash::Alternating, Dash::Long, Dash::Dotted];
    let curve = cell.outcome.as_ref()?.curve.iter().take(effort.figure_epochs.max(20) as usize);
    let points = curve.enumerate().map(|(i, point)| (i as f64 + 1.0, 100.0 * point.accuracy)).collect();
    if cell.clipping.is_none() {
        let stroke = Stroke { colour: chart::GREY, dash: Dash::Dashed, width: 1.4, marker: None };
        return Some(Series { label: format!("{}, no privacy", cell.batch), points, stroke });
    }
    let style = effort.batches.iter().position(|batch| *batch == cell.batch).unwrap_or(0);
    Some(Series {
        label: format!("{}, C = {}", cell.batch, cell.clip().map_or("–".into(), number)),
        points,
        stroke: Stroke {
            colour: style,
            dash: dashes[style % dashes.len()],
            width: 1.8,
            marker: Some(markers[style % markers.len()]),
        },
    })
}
