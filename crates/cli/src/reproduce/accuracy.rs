//! Table 3 and Figure 1 as tables and pictures.

use dpsgd_data::Known;
use serde_json::{Value, json};

use super::experiment::{Clipping, short};
use super::panels::{Cell, SAMPLERS, Scale, furthest};
use super::printed;
use super::section::{Csv, Section};
use super::stated::Stated;
use crate::Failure;
use crate::chart::{Axis, Chart, Dash, Marker, Scale as AxisScale, Series, Stroke};
use crate::html::{self, Figure};
use crate::settings::{SamplingName, number};
use crate::train::progress::duration;

/// The plots of the panels: three fit side by side.
const PANEL: (f64, f64) = (250.0, 180.0);

/// The name of a data set as people write it.
pub fn title(data: Known) -> &'static str {
    if data == Known::Cifar10 { "CIFAR-10" } else { "MNIST" }
}

fn seconds(cell: &Cell) -> f64 {
    cell.outcome.as_ref().and_then(|outcome| outcome.curve.last()).map_or(0.0, |last| last.seconds)
}

fn percent(share: f64) -> String {
    format!("{:.2}", 100.0 * share)
}

/// Table 3: the best of every panel, beside what the paper prints and what the run guarantees.
pub fn table3(cells: &[Cell], scale: &Scale) -> Result<Section, Failure> {
    let header = [
        "",
        "|S_b|",
        "C",
        "E",
        "paper, %",
        "ours, %",
        "difference",
        "best epoch, %",
        "ε against A₁",
        "ε against A₀",
        "time",
    ];
    let mut csv = Csv::new(&[
        "data",
        "sampling",
        "clipping",
        "batch",
        "groups",
        "group_size",
        "clip",
        "epochs",
        "paper_percent",
        "accuracy_percent",
        "difference",
        "best_percent",
        "best_epoch",
        "epsilon_a1",
        "epsilon_a0",
        "delta",
        "seconds",
        "seed",
    ]);
    let mut text = String::new();
    let mut json = Vec::new();
    for &data in &scale.data {
        let mut rows = Vec::new();
        let kinds = Clipping::ALL.into_iter().map(Some).chain([None]);
        for (sampling, clipping) in
            SAMPLERS.into_iter().flat_map(|sampling| kinds.clone().map(move |clipping| (sampling, clipping)))
        {
            let printed = printed::accuracy(data, sampling, clipping);
            let kind = clipping.map_or("no privacy", Clipping::short);
            let name = format!("{} {} {kind}", title(data), short(sampling));
            let Some(cell) = furthest(cells, data, sampling, clipping) else {
                let mut row =
                    vec![name, "–".into(), "–".into(), "–".into(), number(printed), "not computed".into()];
                row.resize(header.len(), String::new());
                rows.push(row);
                continue;
            };
            let (Some((epochs, accuracy)), Some(outcome)) = (cell.reached(), &cell.outcome) else { continue };
            let guarantee = Stated::of(&outcome.experiment, epochs)?;
            let best = outcome
                .curve
                .iter()
                .enumerate()
                .max_by(|a, b| a.1.accuracy.total_cmp(&b.1.accuracy).then(b.0.cmp(&a.0)));
            let (best_epoch, best) = best.map_or((0, 0.0), |(i, point)| (i + 1, point.accuracy));
            let ours = 100.0 * accuracy;
            let [a1, a0] = Stated::cells(guarantee.as_ref());
            rows.push(vec![
                name,
                cell.batch.to_string(),
                cell.clip().map_or("–".into(), number),
                epochs.to_string(),
                number(printed),
                format!("{ours:.2}"),
                format!("{:+.2}", ours - printed),
                format!("{} ({best_epoch})", percent(best)),
                a1,
                a0,
                duration(seconds(cell)),
            ]);
            let settings = &outcome.experiment.settings;
            let row = json!({
                "data": data.name(),
                "sampling": short(sampling),
                "clipping": clipping.map_or("none", Clipping::short),
                "batch": cell.batch,
                "groups": settings.groups,
                "group_size": settings.group_size,
                "clip": cell.clip(),
                "epochs": epochs,
                "paper_percent": printed,
                "accuracy_percent": ours,
                "difference": ours - printed,
                "best_percent": 100.0 * best,
                "best_epoch": best_epoch,
                "epsilon_a1": guarantee.map(|given| given.a1),
                "epsilon_a0": guarantee.map(|given| given.a0.unwrap_or(given.a1)),
                "delta": super::stated::DELTA,
                "seconds": seconds(cell),
                "seed": settings.seed,
            });
            csv.object(&row);
            json.push(row);
        }
        text.push_str(&html::wide_table(&header.map(String::from), &rows));
    }
    let words = [
        "Test accuracy in percent with σ = 2, η = 0.025 (times 0.9 after an epoch in which the test accuracy fell), \
         plain steps, as Algorithm 1 is printed: noise N(0, (2Cσ)²) on the sum of m clipped group results, divided \
         by m. |S_b| is the batch size that was best in the panels of Figure 1 at their length; its run went on to E. ε is the certified \
         upper end at δ = 1e-5 for this very run, had its randomness been secret (it has a seed, so that you can repeat it). For \
         shuffling nothing better than A₁'s ε is proved against A₀.",
        "C was chosen for each data set, kind of clipping and batch size on short runs that learn from the first training samples and \
         are measured on the last 10,000 of them: by their accuracy on MNIST, on CIFAR-10 by their loss, which shows progress \
         earlier, and where none is better than that of the untrained network it is the C that was found on MNIST. The test \
         set was not looked at for that (it does decide about η, as in the paper, and about |S_b|).",
    ];
    let html = words.map(html::paragraph).concat() + &text;
    Ok(Section {
        title: "Table 3: accuracy".into(),
        html,
        csv: vec![csv.file("table3.csv")],
        json: Value::Array(json),
    })
}

/// Figure 1: the accuracy over the epochs, a panel for each data set, sampler and kind of clipping.
pub fn figure1(cells: &[Cell], scale: &Scale) -> Section {
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
    let mut figures = Vec::new();
    for &data in &scale.data {
        for (sampling, clipping) in
            SAMPLERS.into_iter().flat_map(|sampling| Clipping::ALL.map(|clipping| (sampling, clipping)))
        {
            let panel: Vec<&Cell> = cells
                .iter()
                .filter(|cell| (cell.data, cell.sampling, cell.clipping) == (data, sampling, Some(clipping)))
                .collect();
            let baseline = furthest(cells, data, sampling, None);
            figures.push(figure((data, sampling, clipping), &panel, baseline, scale));
        }
    }
    for cell in cells {
        let Some(outcome) = &cell.outcome else { continue };
        for (i, point) in outcome.curve.iter().enumerate() {
            csv.object(&json!({
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
    let words = format!(
        "Test accuracy over the epochs for |S_b| = {}, with σ = 2 and η = 0.025. The dotted line is the accuracy that the \
         paper's Table 3 prints for the panel, the dashed grey one our mini-batch SGD without privacy.",
        scale.batches.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
    );
    let html = html::paragraph(&words) + &html::small_figures(&figures);
    let json = csv.rows();
    Section {
        title: "Figure 1: accuracy over the epochs".into(),
        html,
        csv: vec![csv.file("figure1.csv")],
        json,
    }
}

fn figure(
    (data, sampling, clipping): (Known, SamplingName, Clipping),
    panel: &[&Cell],
    baseline: Option<&Cell>,
    scale: &Scale,
) -> Figure {
    let markers = [Marker::Circle, Marker::Square, Marker::Triangle, Marker::Diamond, Marker::TriangleDown];
    let dashes = [Dash::Solid, Dash::Dashed, Dash::Alternating, Dash::Long, Dash::Dotted];
    let mut series = Vec::new();
    for cell in panel.iter().copied().chain(baseline) {
        let Some(outcome) = &cell.outcome else { continue };
        let curve = outcome.curve.iter().take(scale.figure_epochs.max(20) as usize);
        let points: Vec<(f64, f64)> =
            curve.enumerate().map(|(i, point)| (i as f64 + 1.0, 100.0 * point.accuracy)).collect();
        if cell.clipping.is_none() {
            let stroke = Stroke { colour: crate::chart::GREY, dash: Dash::Dashed, width: 1.4, marker: None };
            series.push(Series { label: format!("{}, no privacy", cell.batch), points, stroke });
            continue;
        }
        let style = scale.batches.iter().position(|batch| *batch == cell.batch).unwrap_or(0);
        series.push(Series {
            label: format!("{}, C = {}", cell.batch, cell.clip().map_or("–".into(), number)),
            points,
            stroke: Stroke {
                colour: style,
                dash: dashes[style % dashes.len()],
                width: 1.8,
                marker: Some(markers[style % markers.len()]),
            },
        });
    }
    let last = series.iter().flat_map(|one| one.points.iter().map(|point| point.0)).fold(2.0, f64::max);
    let printed = printed::accuracy(data, sampling, Some(clipping));
    series.push(Series {
        label: format!("paper: {printed} %"),
        points: vec![(0.0, printed), (last, printed)],
        stroke: Stroke { colour: crate::chart::BLACK, dash: Dash::Dotted, width: 1.4, marker: None },
    });
    let chart = Chart {
        title: format!("{}, {}, {}", title(data), short(sampling), clipping.short()),
        subtitle: None,
        x: Axis { label: "epoch".into(), scale: AxisScale::Linear, range: Some((0.0, last)) },
        y: Axis { label: "test accuracy, %".into(), scale: AxisScale::Linear, range: Some((0.0, 100.0)) },
        series,
        bands: Vec::new(),
    };
    Figure::new(&chart, PANEL, "")
}
