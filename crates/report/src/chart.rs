//! Line charts: one drawing as a self-contained SVG, and the same drawing as PNG.
//!
//! The charts also work in print. Curves differ in dash and marker, not in colour alone, and the legend sits
//! outside the plot, so it cannot cover a curve.
//!
//! Labels may use Unicode superscripts and subscripts (`f⁻¹`, `A₁`, `fᴸ`). They are drawn as raised or
//! lowered ordinary characters, because few fonts have all of them. A small Greek letter after an underscore
//! is lowered as well (`G_µ`), because Unicode has no lowered one.

mod axis;
mod layout;
mod legend;
mod marks;
mod raster;
#[cfg(test)]
mod tests;
mod text;

/// The colours that [`Stroke::colour`] and [`Band::colour`] index; an index beyond the end wraps around.
///
/// All but the grey are from the set of Okabe and Ito, which stays distinguishable under the
/// common colour-vision deficiencies. Its yellow is left out, as a thin yellow line is invisible
/// on white.
pub const PALETTE: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#757575"];

/// The index of black in [`PALETTE`].
pub const BLACK: usize = 6;

/// The index of grey in [`PALETTE`], for reference lines such as a random guess.
pub const GREY: usize = 7;

/// A line chart.
///
/// The plot is a square if both axes have the same scale and the same given range, so that a diagonal is at
/// 45 degrees; otherwise it is wider than high. The legend is below the plot, or to its right if it is long.
/// Long texts break into lines, and the picture grows with its content.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The heading; empty for none.
    pub title: String,
    /// A smaller line below the heading.
    pub subtitle: Option<String>,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The curves; a later one is drawn over an earlier one.
    pub series: Vec<Series>,
    /// The shaded areas, drawn below all curves.
    pub bands: Vec<Band>,
}

/// One axis of a [`Chart`].
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What is measured, and in which unit.
    pub label: String,
    /// How values are placed along the axis.
    pub scale: Scale,
    /// The smallest and the largest value shown, in either order.
    ///
    /// `None` shows all data and rounds outwards to ticks. So does a range that the scale cannot
    /// show: one that is not finite or, on a logarithmic axis, not positive.
    pub range: Option<(f64, f64)>,
}

impl Axis {
    /// A linear axis from zero to the first tick at or above all values.
    pub fn from_zero(label: impl Into<String>, values: impl Iterator<Item = f64>) -> Self {
        let largest = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        let end = if largest > 0.0 { axis::end_from_zero(largest) } else { 1.0 };
        Self { label: label.into(), scale: Scale::Linear, range: Some((0.0, end)) }
    }
}

/// How values are placed along an [`Axis`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences have equal lengths.
    Linear,
    /// Equal ratios have equal lengths; values that are not positive are not drawn.
    Log10,
}

/// One curve of a [`Chart`].
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The text in the legend; empty for no entry.
    pub label: String,
    /// The points, joined by straight lines in the order given.
    ///
    /// A point that cannot be placed (not finite, or not positive on a logarithmic axis)
    /// interrupts the line. So do magnitudes above 1e300, and below 1e-300 on a logarithmic axis.
    pub points: Vec<(f64, f64)>,
    /// How the line looks.
    pub stroke: Stroke,
}

/// How the line of a [`Series`] looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stroke {
    /// An index into [`PALETTE`].
    pub colour: usize,
    /// The pattern of the line.
    pub dash: Dash,
    /// The thickness in pixels at scale 1; 1.8 is a good start.
    pub width: f64,
    /// The shape drawn at some points of the series, evenly spread along the line; at every point if there
    /// are at most twenty.
    pub marker: Option<Marker>,
}

/// The pattern of a line; patterns grow with the thickness of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dash {
    /// Uninterrupted.
    Solid,
    /// Dashes of medium length.
    Dashed,
    /// Dots.
    Dotted,
    /// Dash and dot in turn.
    Alternating,
    /// Long dashes with short gaps.
    Long,
}

/// A shape on a line, hollow so that the line stays traceable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// A circle.
    Circle,
    /// A square on its side.
    Square,
    /// A triangle pointing up.
    Triangle,
    /// A square on its corner.
    Diamond,
    /// A triangle pointing down.
    TriangleDown,
    /// Two crossing diagonals.
    Cross,
}

/// A shaded area between two curves of a [`Chart`].
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// The text in the legend; empty for no entry.
    ///
    /// The entry follows those of the series that have the same index of colour.
    pub label: String,
    /// The lower edge, from left to right; points that cannot be placed are left out.
    pub lower: Vec<(f64, f64)>,
    /// The upper edge, from left to right; it need not have the abscissae of the lower one.
    pub upper: Vec<(f64, f64)>,
    /// An index into [`PALETTE`].
    pub colour: usize,
}

impl Chart {
    /// Draws the chart; the same chart always yields the same text.
    pub fn svg(&self) -> String {
        layout::draw(self, layout::plot_size(self))
    }

    /// Draws the chart around a plot of this width and height.
    pub fn svg_of(&self, size: (f64, f64)) -> String {
        layout::draw(self, size)
    }
}

/// Puts drawings of [`Chart::svg`] side by side, their tops aligned.
pub fn side_by_side(drawings: &[String]) -> String {
    layout::side_by_side(drawings)
}

/// Rasterises an SVG drawn by [`Chart::svg`] and writes it as PNG.
///
/// `scale` is the number of pixels per unit of the SVG; 2 suits screens, 4 suits print. All text
/// is set in fonts that are part of the program, so the picture is the same on every machine.
///
/// # Errors
///
/// If the text is not SVG, or the picture would have no pixels or a side beyond 16384 of them.
pub fn png(svg: &str, scale: f32) -> Result<Vec<u8>, ChartError> {
    raster::png(svg, scale)
}

/// Why a chart has no picture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChartError {
    /// The text is not SVG.
    #[error("the drawing is not valid SVG: {0}")]
    Svg(#[from] resvg::usvg::Error),
    /// The picture would have no pixels or too many.
    #[error("a picture of {width} by {height} pixels cannot be drawn")]
    Size {
        /// The width asked for.
        width: f32,
        /// The height asked for.
        height: f32,
    },
    /// The pixels could not be written as PNG.
    #[error("the picture cannot be written as PNG: {0}")]
    Png(String),
}

/// The colour at an index that callers may have counted past the end.
fn colour(index: usize) -> &'static str {
    PALETTE[index % PALETTE.len()]
}
