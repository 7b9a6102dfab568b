//! The figures of both tables, each with its numbers.

mod first;
mod second;

use dpsgd::Error;
use dpsgd_privacy::bounds::Bounds;
use dpsgd_privacy::printed::{self, Printed, Side};
use dpsgd_privacy::{Adversary, adversary, gaussian};
use dpsgd_report::chart::{Axis, Band, Chart, Dash, GREY, Marker, Scale, Series, Stroke};
use dpsgd_report::html::Figure;
use dpsgd_report::text::number;
use rayon::prelude::*;
use serde_json::{Value, json};

use super::DELTA;
use super::grid::Case;
use crate::section;

pub use self::first::table1;
pub use self::second::table2;

/// A chart with its caption and the file of its numbers.
pub struct Plotted {
    /// The name of the CSV file.
    pub file: &'static str,
    /// The chart.
    pub chart: Chart,
    /// What it shows.
    pub caption: String,
    /// The names of the two axes in the file.
    axes: (&'static str, &'static str),
}

type Points = Vec<(f64, f64)>;

impl Plotted {
    /// As a part of the page.
    pub fn drawn(&self) -> Figure {
        let size = if self.axes.0 == "alpha" { (400.0, 400.0) } else { (430.0, 330.0) };
        Figure::new(&self.chart, size, self.caption.as_str())
    }

    /// All series, one point per line.
    pub fn csv(&self) -> Result<String, Error> {
        let mut records = vec![["series", self.axes.0, self.axes.1].map(str::to_string).to_vec()];
        for (label, points) in self.lines() {
            records.extend(points.iter().map(|&(x, y)| vec![label.clone(), number(x), number(y)]));
        }
        section::csv(self.file, records)
    }

    /// The same as an object.
    pub fn json(&self) -> Value {
        let lines = self.lines().map(|(label, points)| json!({ "label": label, "points": points }));
        json!({
            "file": self.file,
            "title": self.chart.title,
            "x": self.axes.0,
            "y": self.axes.1,
            "series": lines.collect::<Vec<_>>(),
        })
    }

    fn lines(&self) -> impl Iterator<Item = (String, &Points)> {
        let edges = self.chart.bands.iter().flat_map(|band| {
            [
                (format!("{}: lower edge", band.label), &band.lower),
                (format!("{}: upper edge", band.label), &band.upper),
            ]
        });
        self.chart.series.iter().map(|series| (series.label.clone(), &series.points)).chain(edges)
    }
}

/// A chart of miss rates over false-alarm rates.
fn tradeoffs(title: &str, subtitle: &str, mut series: Vec<Series>, bands: Vec<Band>) -> Chart {
    series.insert(
        0,
        line("random guess, G₀ = 1 − α", vec![(0.0, 1.0), (1.0, 0.0)], look(GREY, Dash::Long, 1.2)),
    );
    let axis = |label: &str| Axis { label: label.to_string(), scale: Scale::Linear, range: Some((0.0, 1.0)) };
    Chart {
        title: title.to_string(),
        subtitle: Some(subtitle.to_string()),
        x: axis("false-alarm rate α of the attack"),
        y: axis("miss rate β = f(α)"),
        series,
        bands,
    }
}

/// A chart of ε over a count, both logarithmic.
fn growth(title: &str, subtitle: &str, x: &str, series: Vec<Series>) -> Chart {
    let axis = |label: &str| Axis { label: label.to_string(), scale: Scale::Log10, range: None };
    Chart {
        title: title.to_string(),
        subtitle: Some(subtitle.to_string()),
        x: axis(x),
        y: axis("ε at δ = 1e-5"),
        series,
        bands: Vec::new(),
    }
}

fn look(colour: usize, dash: Dash, width: f64) -> Stroke {
    Stroke { colour, dash, width, marker: None }
}

fn marked(colour: usize, dash: Dash, marker: Marker) -> Stroke {
    Stroke { colour, dash, width: 2.0, marker: Some(marker) }
}

fn line(label: &str, points: Points, stroke: Stroke) -> Series {
    Series { label: label.to_string(), points, stroke }
}

/// The certified ε of a run.
fn epsilon(case: &Case, adversary: Adversary) -> Result<f64, Error> {
    Ok(adversary::curve(&case.mechanism()?, adversary)?.epsilon(DELTA)?.upper)
}

/// The closed form that is printed in a place, if it applies to the run.
fn form<'a>(forms: &'a [Printed], source: &str, side: Side) -> Option<&'a Printed> {
    forms.iter().find(|form| form.source.starts_with(source) && form.side == side)
}

/// The ε that a closed form claims; infinite where it promises nothing.
fn claimed(forms: &[Printed], source: &str, side: Side) -> f64 {
    form(forms, source, side).map_or(f64::NAN, |form| form.epsilon)
}

/// The closed forms of a run.
fn forms(case: &Case) -> Result<Vec<Printed>, Error> {
    Ok(printed::as_printed(&case.mechanism()?, DELTA)?)
}

/// ε of G_µ with µ = √square/σ.
fn gaussian_epsilon(square: f64, sigma: f64) -> f64 {
    gaussian::epsilon(square.sqrt() / sigma, DELTA)
}

/// Several values for each count, computed in parallel: a line for each value.
fn over<const K: usize>(
    counts: &[u64],
    values: impl Fn(u64) -> Result<[f64; K], Error> + Sync,
) -> Result<[Points; K], Error> {
    let found: Vec<[f64; K]> = counts.par_iter().map(|&count| values(count)).collect::<Result<_, Error>>()?;
    let line =
        |k: usize| counts.iter().zip(&found).map(|(&count, values)| (count as f64, values[k])).collect();
    Ok(std::array::from_fn(line))
}

/// A line of slope `power` in a logarithmic chart, through the first of some points.
fn guide(through: &Points, power: f64) -> Points {
    let Some(&(x0, y0)) = through.first() else { return Vec::new() };
    through.iter().map(|&(x, _)| (x, y0 * (x / x0).powf(power))).collect()
}

/// The guaranteed miss rates of a run.
fn misses(case: &Case, adversary: Adversary, quick: bool) -> Result<Points, Error> {
    let curve = adversary::curve(&case.mechanism()?, adversary)?;
    rates(quick).into_iter().map(|alpha| Ok((alpha, curve.beta(alpha)?.lower))).collect()
}

/// G_µ.
fn gaussian_line(mu: f64, quick: bool) -> Points {
    rates(quick).into_iter().map(|alpha| (alpha, gaussian::tradeoff(mu, alpha))).collect()
}

/// f^L to f^U.
fn band(case: &Case, colour: usize, quick: bool) -> Result<Band, Error> {
    let bounds = Bounds::of(&case.mechanism()?)?;
    let edge = |f: &dyn Fn(f64) -> f64| rates(quick).into_iter().map(|alpha| (alpha, f(alpha))).collect();
    Ok(Band {
        label: "fᴸ to fᵁ".to_string(),
        lower: edge(&|alpha| bounds.lower(alpha)),
        upper: edge(&|alpha| bounds.upper(alpha)),
        colour,
    })
}

/// False-alarm rates, finer near 0 and 1, where the curves bend.
fn rates(quick: bool) -> Vec<f64> {
    let steps = if quick { 40 } else { 150 };
    let eased = |i: i32| {
        let x = f64::from(i) / f64::from(steps);
        // Smoothstep of order two: the spacing vanishes like x² at both ends.
        (x * x * x * (10.0 - 15.0 * x + 6.0 * x * x)).clamp(0.0, 1.0)
    };
    (0..=steps).map(eased).collect()
}

/// Numbers of epochs from 1 to 200.
fn epochs(quick: bool) -> &'static [u64] {
    if quick { &[1, 2, 5, 20, 100] } else { &[1, 2, 3, 4, 5, 7, 10, 14, 20, 30, 40, 50, 70, 100, 140, 200] }
}

/// Numbers of differing samples from 1 to 64.
fn differing(quick: bool) -> &'static [u64] {
    if quick { &[1, 2, 4] } else { &[1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64] }
}
