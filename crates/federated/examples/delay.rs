//! Draws what asynchrony costs, from the table that `bench/federated_delay.py` writes.
//!
//!     cargo run --release -p dpsgd-federated --example delay -- docs/results/federated.csv federated.png

use std::collections::BTreeMap;
use std::error::Error;

use dpsgd::report::chart::{self, Axis, Band, Chart, Dash, GREY, Marker, Scale, Series, Stroke};

/// Accuracies by delay, of a server and a split.
type Found = BTreeMap<(String, String), BTreeMap<u64, Vec<f64>>>;

fn read(path: &str) -> Result<Found, Box<dyn Error>> {
    let mut found = Found::new();
    for line in std::fs::read_to_string(path)?.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let [server, split, delay, attackers, _, accuracy, ..] = cells[..] else {
            return Err(format!("{line}: too few cells").into());
        };
        if attackers == "0" {
            let of = found.entry((server.into(), split.into())).or_default();
            of.entry(delay.parse()?).or_default().push(accuracy.parse()?);
        }
    }
    Ok(found)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [table, picture] = &arguments[..] else {
        return Err("name the table and the picture".into());
    };
    let found = read(table)?;
    let (mut series, mut bands) = (Vec::new(), Vec::new());
    for (i, split) in ["iid", "dirichlet:0.3"].into_iter().enumerate() {
        let servers = [
            ("each", "each update", Dash::Solid, Some(Marker::Circle)),
            ("buffer", "buffer of 10", Dash::Dashed, Some(Marker::Square)),
            ("synchronous", "synchronous", Dash::Dotted, None),
        ];
        for (server, name, dash, marker) in servers {
            let Some(by_delay) = found.get(&(server.to_string(), split.to_string())) else { continue };
            let mut points: Vec<_> =
                by_delay.iter().map(|(delay, values)| (*delay as f64, mean(values))).collect();
            let all = |of: fn(f64, f64) -> f64, start: f64| {
                let each = by_delay.iter();
                each.map(|(delay, values)| (*delay as f64, values.iter().copied().fold(start, of))).collect()
            };
            if points.len() > 1 {
                let (lower, upper) = (all(f64::min, f64::INFINITY), all(f64::max, f64::NEG_INFINITY));
                bands.push(Band { label: String::new(), lower, upper, colour: i });
            }
            if let [(_, only)] = points[..] {
                points = vec![(1.0, only), (64.0, only)];
            }
            let stroke = Stroke { colour: i, dash, width: 1.8, marker };
            series.push(Series { label: format!("{name}, {split}"), points, stroke });
        }
    }
    if let Some(central) = found.get(&("central".to_string(), "iid".to_string())) {
        let value = mean(&central.values().flatten().copied().collect::<Vec<_>>());
        let stroke = Stroke { colour: GREY, dash: Dash::Long, width: 1.4, marker: None };
        series.push(Series {
            label: "centralised".into(),
            points: vec![(1.0, value), (64.0, value)],
            stroke,
        });
    }
    let chart = Chart {
        title: "Ten clients on MNIST, each at ε ≤ 3".into(),
        subtitle: Some("logistic regression; mean and range over the seeds".into()),
        x: Axis { label: "median delay of a message, in rounds".into(), scale: Scale::Log10, range: None },
        y: Axis { label: "test accuracy, %".into(), scale: Scale::Linear, range: None },
        series,
        bands,
    };
    std::fs::write(picture, chart::png(&chart.svg(), 2.0)?)?;
    Ok(())
}
