//! The picture as a whole: how much room each part gets, and the parts around the curves.

use super::Chart;
use super::axis::{Ruler, Tick};
use super::legend::Legend;
use super::marks::{self, Plot};
use super::text::{self, Anchor, INK, Style, num};

/// The room left empty along the edges of the picture.
const MARGIN: f64 = 16.0;

/// The side of a square plot.
const SQUARE: f64 = 520.0;

/// The width and height of any other plot.
const OBLONG: (f64, f64) = (600.0, 380.0);

/// How far lines may reach over the frame: a curve along the frame shows in full width.
const OVERHANG: f64 = 2.0;

/// The highest legend that goes below the plot.
const HIGHEST_LEGEND: f64 = 130.0;

/// The length of the marks at the ticks.
const TICK: f64 = 4.0;

/// The distance of lines of text relative to its size.
const LEADING: f64 = 1.3;

const fn style(size: f64, anchor: Anchor) -> Style {
    Style { size, bold: false, anchor }
}

const TITLE: Style = Style { size: 17.0, bold: true, anchor: Anchor::Start };
const SUBTITLE: Style = style(12.5, Anchor::Start);
const LABEL: Style = style(13.5, Anchor::Middle);
const X_TICK: Style = style(12.0, Anchor::Middle);
const Y_TICK: Style = style(12.0, Anchor::End);

/// Lines of text in one style.
struct Block {
    lines: Vec<String>,
    style: Style,
}

impl Block {
    fn new(text: &str, style: Style, room: f64) -> Self {
        // Bold letters are wider than the measure knows.
        let room = if style.bold { room / 1.1 } else { room };
        let lines = text::wrap(text, style.size, room);
        Self { lines, style }
    }

    fn height(&self) -> f64 {
        self.lines.len() as f64 * self.style.size * LEADING
    }

    /// The lines with the distance of their baselines from the top of the block.
    fn baselines(&self) -> impl Iterator<Item = (&String, f64)> {
        let size = self.style.size;
        (self.lines.iter().enumerate()).map(move |(i, l)| (l, size * (1.0 + LEADING * i as f64)))
    }

    fn draw(&self, out: &mut String, x: f64, top: f64) {
        for (line, baseline) in self.baselines() {
            text::line(out, line, (x, top + baseline), self.style);
        }
    }

    fn draw_upwards(&self, out: &mut String, left: f64, y: f64) {
        for (line, baseline) in self.baselines() {
            text::line_upwards(out, line, (left + baseline, y), self.style);
        }
    }
}

/// The least room for the labels of the vertical axis: plots below and beside each other align, although one
/// has percentages and the other one decimals.
const TICK_LABELS: f64 = 36.0;

/// Draws a chart around a plot of this size.
pub(super) fn draw(chart: &Chart, (width, height): (f64, f64)) -> String {
    let title = Block::new(&chart.title, TITLE, width);
    let subtitle = Block::new(chart.subtitle.as_deref().unwrap_or(""), SUBTITLE, width);
    let x_label = Block::new(&chart.x.label, LABEL, width);
    let y_label = Block::new(&chart.y.label, LABEL, height);

    let (x, y) = rulers(chart);
    let plot = Plot {
        left: MARGIN + y_label.height() + widest(&y.ticks).max(TICK_LABELS) + TICK + 8.0,
        top: MARGIN + title.height() + subtitle.height() + 8.0,
        width,
        height,
        x,
        y,
    };
    let right = plot.left + width + overhang(&plot.x.ticks);
    let x_label_top = plot.top + height + TICK + X_TICK.size + 10.0;
    let bottom = x_label_top + x_label.height();
    let (legend, legend_at) = legend(chart, &plot, (right, bottom));
    let full_width = right.max(legend_at.0 + legend.width) + MARGIN;
    let full_height = bottom.max(legend_at.1 + legend.height) + MARGIN;

    let mut out = String::new();
    open(&mut out, chart, full_width.ceil(), full_height.ceil());
    title.draw(&mut out, plot.left, MARGIN - 2.0);
    subtitle.draw(&mut out, plot.left, MARGIN + title.height() - 2.0);
    grid(&mut out, &plot);
    // Below the curves: one that runs along the frame matters more.
    frame(&mut out, &plot);
    curves(&mut out, &plot, chart);
    x_label.draw(&mut out, plot.left + width / 2.0, x_label_top);
    y_label.draw_upwards(&mut out, MARGIN - 3.0, plot.top + height / 2.0);
    legend.draw(&mut out, legend_at);
    out += "</svg>\n";
    out
}

/// Drawings of [`draw`] in a row.
pub(super) fn side_by_side(drawings: &[String]) -> String {
    let side = |drawing: &str, name: &str| -> f64 {
        let value = drawing.split_once(&format!(" {name}=\"")).and_then(|(_, rest)| rest.split('"').next());
        // Every drawing starts with its width and height.
        value.and_then(|value| value.parse().ok()).unwrap_or(0.0)
    };
    let widths = drawings.iter().map(|drawing| side(drawing, "width"));
    let (w, h) = (
        num(widths.clone().sum()),
        num(drawings.iter().map(|drawing| side(drawing, "height")).fold(0.0, f64::max)),
    );
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\">\n\
         <rect width=\"{w}\" height=\"{h}\" fill=\"#fff\"/>\n"
    );
    let mut left = 0.0;
    for (drawing, width) in drawings.iter().zip(widths) {
        out += &drawing.replacen("<svg ", &format!("<svg x=\"{}\" ", num(left)), 1);
        left += width;
    }
    out + "</svg>\n"
}

/// The legend and its place, given where the plot with its labels ends: below it, or to the right
/// if the picture would become too high.
fn legend<'a>(chart: &'a Chart, plot: &Plot, (right, bottom): (f64, f64)) -> (Legend<'a>, (f64, f64)) {
    let below = Legend::below(chart, plot.width);
    if below.height <= HIGHEST_LEGEND {
        (below, (plot.left, bottom + 8.0))
    } else {
        (Legend::beside(chart), (right + 20.0, plot.top))
    }
}

/// The width and height that suit the axes.
pub(super) fn plot_size(chart: &Chart) -> (f64, f64) {
    let (x, y) = (&chart.x, &chart.y);
    if x.scale == y.scale && x.range.is_some() && x.range == y.range { (SQUARE, SQUARE) } else { OBLONG }
}

/// Both axes, settled.
fn rulers(chart: &Chart) -> (Ruler, Ruler) {
    let data = || {
        let series = chart.series.iter().map(|s| &s.points);
        let bands = chart.bands.iter().flat_map(|b| [&b.lower, &b.upper]);
        series.chain(bands).flatten()
    };
    let x = Ruler::new(&chart.x, data().map(|p| p.0));
    let y = Ruler::new(&chart.y, data().map(|p| p.1));
    (x, y)
}

/// The room for the widest label of some ticks; both axes have labels of one size.
fn widest(ticks: &[Tick]) -> f64 {
    ticks.iter().map(|t| text::width(&t.label, Y_TICK.size)).fold(0.0, f64::max)
}

/// Every how many ticks the horizontal axis has room for a label.
fn label_stride(plot: &Plot) -> usize {
    let ticks = &plot.x.ticks;
    let narrowest =
        ticks.windows(2).map(|pair| (pair[1].at - pair[0].at) * plot.width).fold(f64::INFINITY, f64::min);
    (widest(ticks) / narrowest).ceil().max(1.0) as usize
}

/// The room for the label at the right end of the horizontal axis, half of which is beyond it.
fn overhang(ticks: &[Tick]) -> f64 {
    ticks.last().map_or(0.0, |t| text::width(&t.label, X_TICK.size) / 2.0 - 8.0).max(0.0)
}

/// Opens the document and paints the background.
fn open(out: &mut String, chart: &Chart, width: f64, height: f64) {
    let (w, h) = (num(width), num(height));
    *out += &format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" \
         font-family=\"sans-serif\" fill=\"{INK}\" stroke-linejoin=\"round\" role=\"img\">\n"
    );
    *out += &format!("<title>{}</title>\n", text::escape(&chart.title));
    *out += &format!("<rect width=\"{w}\" height=\"{h}\" fill=\"#fff\"/>\n");
}

/// Draws the bands and curves, cut off at the frame.
fn curves(out: &mut String, plot: &Plot, chart: &Chart) {
    // An inner document cuts off without an identifier, which could clash with that of another
    // chart on the same page.
    let (x, y) = (num(plot.left - OVERHANG), num(plot.top - OVERHANG));
    let (w, h) = (plot.width + 2.0 * OVERHANG, plot.height + 2.0 * OVERHANG);
    let (w, h) = (num(w), num(h));
    *out += &format!("<svg x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" viewBox=\"{x} {y} {w} {h}\">\n");
    for band in &chart.bands {
        marks::band(out, plot, band);
    }
    for series in &chart.series {
        marks::curve(out, plot, series);
    }
    *out += "</svg>\n";
    // Not cut off: a marker whose centre is on the frame is shown whole. After all curves: no
    // line crosses out the inside of a marker.
    for (i, series) in chart.series.iter().enumerate() {
        marks::markers(out, plot, series, i);
    }
}

/// One straight line as path data.
fn straight((x, y): (f64, f64), (dx, dy): (f64, f64)) -> String {
    format!("M{} {}l{} {}", num(x), num(y), num(dx), num(dy))
}

/// Draws the lines through the ticks.
fn grid(out: &mut String, plot: &Plot) {
    let across = |at: f64| straight((plot.left + at * plot.width, plot.top), (0.0, plot.height));
    let along = |at: f64| {
        let y = plot.top + (1.0 - at) * plot.height;
        straight((plot.left, y), (plot.width, 0.0))
    };
    let minor_x = plot.x.minor.iter().map(|&at| across(at));
    let minor_y = plot.y.minor.iter().map(|&at| along(at));
    lines(out, minor_x.chain(minor_y), "#efefef", 0.7);
    let major_x = plot.x.ticks.iter().map(|t| across(t.at));
    let major_y = plot.y.ticks.iter().map(|t| along(t.at));
    lines(out, major_x.chain(major_y), "#dcdcdc", 0.8);
}

/// Draws the frame and the ticks with their labels.
fn frame(out: &mut String, plot: &Plot) {
    let (left, bottom) = (plot.left, plot.top + plot.height);
    let mut data = vec![format!(
        "M{} {}h{}v{}h{}Z",
        num(left),
        num(plot.top),
        num(plot.width),
        num(plot.height),
        num(-plot.width)
    )];
    let stride = label_stride(plot);
    for (i, tick) in plot.x.ticks.iter().enumerate() {
        let x = left + tick.at * plot.width;
        data.push(straight((x, bottom), (0.0, TICK)));
        if i % stride == 0 {
            let baseline = bottom + TICK + 2.0 + X_TICK.size;
            text::line(out, &tick.label, (x, baseline), X_TICK);
        }
    }
    for tick in &plot.y.ticks {
        let y = bottom - tick.at * plot.height;
        data.push(straight((left, y), (-TICK, 0.0)));
        let at = (left - TICK - 4.0, y + 0.35 * Y_TICK.size);
        text::line(out, &tick.label, at, Y_TICK);
    }
    lines(out, data.into_iter(), "#555", 1.0);
}

/// Draws lines of one look, if there are any.
fn lines(out: &mut String, data: impl Iterator<Item = String>, colour: &str, width: f64) {
    let data: String = data.collect();
    if !data.is_empty() {
        *out += &format!(
            "<path d=\"{data}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{}\"/>\n",
            num(width)
        );
    }
}
