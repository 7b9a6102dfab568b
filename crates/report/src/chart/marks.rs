//! The curves and the bands.

use super::axis::Ruler;
use super::text::num;
use super::{Band, Dash, Marker, Series, Stroke, colour};

/// A point this near to a line, in pixels, may be left out: printed coordinates are as coarse.
const INVISIBLE: f64 = 0.02;

/// Places further out than this, in pixels, are moved here: renderers count in single precision.
/// It is so far that the direction of a line into the plot does not visibly change.
const FAR: f64 = 1e6;

/// The way along a curve from one marker to the next, in pixels.
const MARKER_STEP: f64 = 120.0;

/// A series with no more points than this has a marker at each.
const FEW: usize = 20;

/// Half the width of a marker, in pixels.
const MARKER_SIZE: f64 = 3.8;

/// A place in the picture.
pub(super) type Place = (f64, f64);

/// The plot: its rectangle in the picture and its axes.
pub(super) struct Plot {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) x: Ruler,
    pub(super) y: Ruler,
}

impl Plot {
    fn place(&self, (x, y): (f64, f64)) -> Option<Place> {
        let x = self.left + self.x.at(x)? * self.width;
        let y = self.top + (1.0 - self.y.at(y)?) * self.height;
        Some((x.clamp(-FAR, FAR), y.clamp(-FAR, FAR)))
    }

    fn shows(&self, (x, y): Place) -> bool {
        // A point on the frame is shown in spite of rounding errors.
        let within =
            |v: f64, start: f64, length: f64| (start - INVISIBLE..start + length + INVISIBLE).contains(&v);
        within(x, self.left, self.width) && within(y, self.top, self.height)
    }

    /// The stretches of a curve between points that cannot be placed.
    fn runs(&self, points: &[(f64, f64)]) -> Vec<Vec<Place>> {
        points
            .iter()
            .map(|&p| self.place(p))
            .collect::<Vec<_>>()
            .split(|p| p.is_none())
            .map(|run| run.iter().flatten().copied().collect())
            .filter(|run: &Vec<_>| !run.is_empty())
            .collect()
    }
}

fn distance(a: Place, b: Place) -> f64 {
    (a.0 - b.0).hypot(a.1 - b.1)
}

/// A run without the points that do not visibly change the line through it.
///
/// This is the method of Ramer, Douglas and Peucker: of a stretch, the point farthest from the
/// straight line between its ends stays and divides it, unless it is too near to be seen.
fn thinned(run: &[Place]) -> Vec<Place> {
    let mut keep = vec![false; run.len()];
    // A list of its own instead of recursion, which a strange curve could make very deep.
    let mut stretches = vec![(0, run.len().saturating_sub(1))];
    while let Some((start, end)) = stretches.pop() {
        let Some((&a, &b)) = run.get(start).zip(run.get(end)) else {
            continue;
        };
        (keep[start], keep[end]) = (true, true);
        let farthest = (start + 1..end)
            .map(|i| (i, distance_to_segment(run[i], a, b)))
            .max_by(|p, q| p.1.total_cmp(&q.1));
        if let Some((i, distance)) = farthest
            && distance > INVISIBLE
        {
            stretches.extend([(start, i), (i, end)]);
        }
    }
    let kept = run.iter().zip(keep).filter(|(_, keep)| *keep);
    kept.map(|(&place, _)| place).collect()
}

fn distance_to_segment(p: Place, a: Place, b: Place) -> f64 {
    let (dx, dy) = (b.0 - a.0, b.1 - a.1);
    let square = dx * dx + dy * dy;
    // Both ends may be the same place.
    let along =
        if square > 0.0 { (((p.0 - a.0) * dx + (p.1 - a.1) * dy) / square).clamp(0.0, 1.0) } else { 0.0 };
    distance(p, (a.0 + along * dx, a.1 + along * dy))
}

/// The path data through some places.
fn path(places: &[Place]) -> String {
    let joined: Vec<String> = places.iter().map(|&(x, y)| format!("{} {}", num(x), num(y))).collect();
    format!("M{}", joined.join("L"))
}

/// The attributes of a line.
fn line_style(stroke: &Stroke) -> String {
    let width = thickness(stroke);
    let pattern: &[f64] = match stroke.dash {
        Dash::Solid => &[],
        Dash::Dashed => &[4.0, 2.2],
        Dash::Dotted => &[1.1, 2.0],
        Dash::Alternating => &[6.0, 2.0, 1.2, 2.0],
        Dash::Long => &[9.0, 2.5],
    };
    let mut style = format!("stroke=\"{}\" stroke-width=\"{}\"", colour(stroke.colour), num(width));
    if !pattern.is_empty() {
        let lengths: Vec<String> = pattern.iter().map(|l| num(l * width)).collect();
        style += &format!(" stroke-dasharray=\"{}\"", lengths.join(" "));
    }
    style
}

/// The width of a stroke within what can be seen and leaves something else to see.
fn thickness(stroke: &Stroke) -> f64 {
    if stroke.width.is_nan() { 1.0 } else { stroke.width.clamp(0.2, 20.0) }
}

/// Draws the area between the edges of a band.
pub(super) fn band(out: &mut String, plot: &Plot, band: &Band) {
    let edge = |points: &[(f64, f64)]| -> Vec<Place> {
        let places: Vec<Place> = points.iter().filter_map(|&p| plot.place(p)).collect();
        thinned(&places)
    };
    let (lower, upper) = (edge(&band.lower), edge(&band.upper));
    if lower.is_empty() || upper.is_empty() {
        return;
    }
    let outline: Vec<Place> = lower.into_iter().chain(upper.into_iter().rev()).collect();
    let style = band_style(band.colour);
    *out += &format!("<path d=\"{}Z\" {style}/>\n", path(&outline));
}

/// The attributes of an area; its thin edge shows a band that is narrower than a pixel.
fn band_style(index: usize) -> String {
    let colour = colour(index);
    format!(
        "fill=\"{colour}\" fill-opacity=\"0.2\" stroke=\"{colour}\" stroke-opacity=\"0.45\" \
         stroke-width=\"0.6\""
    )
}

/// Draws the line of a series.
pub(super) fn curve(out: &mut String, plot: &Plot, series: &Series) {
    for run in plot.runs(&series.points) {
        match thinned(&run)[..] {
            // A path of no length draws nothing.
            [p] => dot(out, p, &series.stroke),
            [p, q] if distance(p, q) < INVISIBLE => dot(out, p, &series.stroke),
            ref places => {
                let style = line_style(&series.stroke);
                *out += &format!("<path d=\"{}\" fill=\"none\" {style}/>\n", path(places));
            }
        }
    }
}

fn dot(out: &mut String, (x, y): Place, stroke: &Stroke) {
    let (x, y, r) = (num(x), num(y), num(thickness(stroke) * 1.2));
    let fill = colour(stroke.colour);
    *out += &format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{r}\" fill=\"{fill}\"/>\n");
}

/// Draws the markers of a series; `index` tells it from the others.
pub(super) fn markers(out: &mut String, plot: &Plot, series: &Series, index: usize) {
    let Some(marker) = series.stroke.marker else {
        return;
    };
    // Curves may nearly coincide, their markers should not. Multiples of the golden ratio spread
    // them evenly, however many series there are.
    let phase = (0.3 + 0.618_034 * index as f64).fract() * MARKER_STEP;
    for run in plot.runs(&series.points) {
        let places = if series.points.len() <= FEW { run } else { spaced(&run, phase) };
        for place in places.into_iter().filter(|&p| plot.shows(p)) {
            shape(out, marker, place, colour(series.stroke.colour));
        }
    }
}

/// Points of a run, about `MARKER_STEP` apart along it.
fn spaced(run: &[Place], phase: f64) -> Vec<Place> {
    let mut way = 0.0;
    let mut next = phase;
    let mut chosen = Vec::new();
    for pair in run.windows(2) {
        way += distance(pair[0], pair[1]);
        if way >= next {
            chosen.push(pair[1]);
            next = way + MARKER_STEP;
        }
    }
    chosen
}

/// Draws one marker.
fn shape(out: &mut String, marker: Marker, (x, y): Place, stroke: &str) {
    let r = MARKER_SIZE;
    // Shapes of equal width differ in area; the factors make them look alike in size.
    let corners: &[(f64, f64)] = match marker {
        Marker::Circle => {
            let (x, y, r) = (num(x), num(y), num(r));
            *out += &format!(
                "<circle cx=\"{x}\" cy=\"{y}\" r=\"{r}\" fill=\"#fff\" stroke=\"{stroke}\" \
                 stroke-width=\"1.3\"/>\n"
            );
            return;
        }
        Marker::Square => &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        Marker::Triangle => &[(0.0, -1.3), (1.15, 0.8), (-1.15, 0.8)],
        Marker::Diamond => &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
        Marker::TriangleDown => &[(0.0, 1.3), (1.15, -0.8), (-1.15, -0.8)],
        Marker::Cross => &[(-0.9, -0.9), (0.9, 0.9), (0.9, -0.9), (-0.9, 0.9)],
    };
    let places: Vec<Place> = corners.iter().map(|c| (x + c.0 * r, y + c.1 * r)).collect();
    let (data, fill) = match marker {
        Marker::Cross => (path(&places[..2]) + &path(&places[2..]), "none"),
        _ => (path(&places) + "Z", "#fff"),
    };
    *out += &format!("<path d=\"{data}\" fill=\"{fill}\" stroke=\"{stroke}\" stroke-width=\"1.3\"/>\n");
}

/// Draws the sample of a series for the legend, from a place to the right.
pub(super) fn curve_sample(out: &mut String, stroke: &Stroke, (x, y): Place, length: f64) {
    let data = path(&[(x, y), (x + length, y)]);
    *out += &format!("<path d=\"{data}\" fill=\"none\" {}/>\n", line_style(stroke));
    if let Some(marker) = stroke.marker {
        shape(out, marker, (x + length / 2.0, y), colour(stroke.colour));
    }
}

/// Draws the sample of a band for the legend, from a place to the right.
pub(super) fn band_sample(out: &mut String, index: usize, (x, y): Place, length: f64) {
    let (low, high) = (y + 5.0, y - 5.0);
    let outline = [(x, low), (x + length, low), (x + length, high), (x, high)];
    *out += &format!("<path d=\"{}Z\" {}/>\n", path(&outline), band_style(index));
}
