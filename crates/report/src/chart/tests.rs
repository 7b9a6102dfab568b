use resvg::tiny_skia::Pixmap;
use resvg::usvg::{Options, Tree};

use super::axis::Ruler;
use super::*;

fn axis(scale: Scale, range: Option<(f64, f64)>) -> Axis {
    let label = "label".into();
    Axis { label, scale, range }
}

fn series(label: &str, points: &[(f64, f64)]) -> Series {
    let stroke = Stroke { colour: 1, dash: Dash::Alternating, width: 1.8, marker: Some(Marker::Diamond) };
    Series { label: label.into(), points: points.to_vec(), stroke }
}

fn chart(points: &[(f64, f64)], scale: Scale, range: Option<(f64, f64)>) -> Chart {
    Chart {
        title: "Title".into(),
        subtitle: Some("Subtitle".into()),
        x: axis(scale, range),
        y: axis(scale, range),
        series: vec![series("curve", points)],
        bands: vec![Band {
            label: "band".into(),
            lower: points.to_vec(),
            upper: points.iter().map(|&(x, y)| (x, y + 0.1)).collect(),
            colour: 1,
        }],
    }
}

fn unit_chart() -> Chart {
    let points = [(0.0, 1.0), (0.3, 0.4), (1.0, 0.0)];
    chart(&points, Scale::Linear, Some((0.0, 1.0)))
}

/// Parses a drawing and checks that every coordinate in it is a number.
fn check(svg: &str) {
    Tree::from_str(svg, &Options::default()).expect("valid SVG");
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}

fn labels(scale: Scale, range: (f64, f64)) -> Vec<String> {
    let ruler = Ruler::new(&axis(scale, Some(range)), std::iter::empty());
    ruler.ticks.into_iter().map(|tick| tick.label).collect()
}

/// The first and the last label of an axis that takes its range from the data.
fn ends(scale: Scale, data: &[f64]) -> (String, String) {
    let ruler = Ruler::new(&axis(scale, None), data.iter().copied());
    let label = |tick: Option<&axis::Tick>| tick.map(|t| t.label.clone()).unwrap_or_default();
    (label(ruler.ticks.first()), label(ruler.ticks.last()))
}

#[test]
fn drawing_is_valid_and_repeatable() {
    let svg = unit_chart().svg();
    check(&svg);
    assert_eq!(svg, unit_chart().svg());
}

#[test]
fn text_is_escaped() {
    let mut chart = unit_chart();
    let nasty = "a<b & \"c\" > 'd' \u{1} ]]>";
    chart.title = nasty.into();
    chart.subtitle = Some(nasty.into());
    chart.x.label = nasty.into();
    chart.series[0].label = nasty.into();
    chart.bands[0].label = nasty.into();
    let svg = chart.svg();
    check(&svg);
    assert!(svg.contains("a&lt;b &amp; &quot;c&quot; &gt; &apos;d&apos; \u{fffd} ]]&gt;"));
}

#[test]
fn raised_and_lowered_text() {
    let mut chart = unit_chart();
    chart.title = "10⁻⁵ G_µ run_1 f ⊗ g".into();
    let svg = chart.svg();
    check(&svg);
    for part in [">10<tspan ", ">−5</tspan>", ">µ</tspan>", " run_1 f ", ">⊗</tspan>"] {
        assert!(svg.contains(part), "{part} in {svg}");
    }
}

#[test]
fn long_text_is_broken() {
    let lines = text::wrap("one two three four five six", 10.0, 80.0);
    assert!(lines.len() > 1);
    assert_eq!(lines.join(" "), "one two three four five six");
    let word = "x".repeat(100);
    let pieces = text::wrap(&word, 10.0, 80.0);
    assert!(pieces.iter().all(|p| text::width(p, 10.0) <= 80.0));
    assert_eq!(pieces.concat(), word);
    // Even without room for a single character there is an end.
    assert_eq!(text::wrap("ab c", 10.0, 0.0), ["a", "b", "c"]);
}

#[test]
fn linear_ticks() {
    let unit = ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"];
    assert_eq!(labels(Scale::Linear, (0.0, 1.0)), unit);
    assert_eq!(labels(Scale::Linear, (1.0, 0.0)), unit);
    assert_eq!(labels(Scale::Linear, (-2.5, 2.5)), ["−2", "−1", "0", "1", "2"]);
    assert_eq!(
        labels(Scale::Linear, (0.0, 3e-5)),
        ["0", "5×10⁻⁶", "1.0×10⁻⁵", "1.5×10⁻⁵", "2.0×10⁻⁵", "2.5×10⁻⁵", "3.0×10⁻⁵"]
    );
}

#[test]
fn logarithmic_ticks() {
    assert_eq!(labels(Scale::Log10, (0.01, 100.0)), ["0.01", "0.1", "1", "10", "100"]);
    assert_eq!(labels(Scale::Log10, (1e-6, 1e-3)), ["10⁻⁶", "10⁻⁵", "10⁻⁴", "10⁻³"]);
    assert_eq!(labels(Scale::Log10, (1.0, 30.0)), ["1", "2", "5", "10", "20"]);
    assert_eq!(labels(Scale::Log10, (3.0, 4.0)), ["3.0", "3.2", "3.4", "3.6", "3.8", "4.0"]);
    assert!(labels(Scale::Log10, (1e-200, 1e200)).len() < 12);
}

#[test]
fn automatic_ranges_end_at_ticks() {
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(ends(Scale::Linear, &[0.13, 0.94]), pair("0.0", "1.0"));
    assert_eq!(ends(Scale::Linear, &[1.0, 40.0, f64::NAN]), pair("0", "40"));
    assert_eq!(ends(Scale::Log10, &[0.9, 1.1, -3.0]), pair("0.5", "2"));
    assert_eq!(ends(Scale::Linear, &[]), pair("0.0", "1.0"));
    assert_eq!(ends(Scale::Log10, &[0.0]), pair("1", "10"));
}

#[test]
fn degenerate_data_draws() {
    const MAX: f64 = f64::MAX;
    const TINY: f64 = f64::from_bits(1);
    const NAN: f64 = f64::NAN;
    let data: &[&[(f64, f64)]] = &[
        &[],
        &[(0.5, 0.5)],
        &[(0.0, 0.0), (0.0, 0.0)],
        &[(-3.0, -3.0)],
        &[(NAN, 1.0), (f64::INFINITY, 2.0)],
        &[(1.0, 1.0), (NAN, NAN), (2.0, 3.0), (3.0, 3.0)],
        &[(-1.0, 0.0), (0.0, -1.0)],
        &[(1.0, 1.0), (1.0 + 1e-15, 1.0 + 1e-15)],
        &[(0.0, TINY), (TINY, 0.0)],
        &[(-MAX, MAX), (MAX, -MAX)],
        &[(-1e300, 1e-300), (1e300, 1e300)],
        &[(1e-300, 1e-300), (2e-300, 2e-300)],
        &[(1e9, 1e9), (1e9 + 3.0, 1e9 + 3.0)],
    ];
    let ranges = [
        None,
        Some((0.0, 1.0)),
        Some((1.0, 1.0)),
        Some((0.0, 0.0)),
        Some((-1.0, 5.0)),
        Some((NAN, 1.0)),
        Some((1e-300, 1e300)),
        Some((-MAX, MAX)),
        Some((1.0, 1e-12)),
    ];
    for points in data {
        for range in ranges {
            for scale in [Scale::Linear, Scale::Log10] {
                check(&chart(points, scale, range).svg());
            }
        }
    }
}

#[test]
fn degenerate_strokes_draw() {
    let mut chart = unit_chart();
    for width in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MAX] {
        chart.series[0].stroke.width = width;
        check(&chart.svg());
    }
    chart.series[0].stroke.colour = usize::MAX;
    chart.bands[0].colour = usize::MAX;
    check(&chart.svg());
}

#[test]
fn missing_points_interrupt_the_line() {
    let whole = [(0.0, 0.0), (1.0, 1.0), (2.0, 0.0), (3.0, 1.0)];
    let mut broken = whole.to_vec();
    broken.insert(2, (1.5, f64::NAN));
    let lines = |points: &[(f64, f64)]| {
        let svg = chart(points, Scale::Linear, None).svg();
        // The legend has one more.
        svg.matches("stroke-dasharray").count() - 1
    };
    assert_eq!(lines(&whole), 1);
    assert_eq!(lines(&broken), 2);
}

/// The width and height of a drawing.
fn size(svg: &str) -> (f32, f32) {
    let tree = Tree::from_str(svg, &Options::default()).expect("valid SVG");
    (tree.size().width(), tree.size().height())
}

#[test]
fn legend_grows_the_picture() {
    let mut chart = unit_chart();
    let small = size(&chart.svg());
    let long = "long ".repeat(30);
    chart.series.push(series(&long, &[(0.0, 0.0), (1.0, 1.0)]));
    let below = size(&chart.svg());
    assert!(below.0 == small.0 && below.1 > small.1);
    let mut many = vec![series("entry", &[(0.0, 0.0)]); 20];
    chart.series.append(&mut many);
    let beside = size(&chart.svg());
    assert!(beside.0 > small.0);
}

#[test]
fn legend_beside_the_plot_breaks_no_label_without_need() {
    let mut chart = unit_chart();
    let label = "a.toml: A₁ proven between fᴸ and fᵁ";
    chart.series = vec![series(label, &[(0.0, 0.0)]); 20];
    // A broken label would be in several elements.
    assert_eq!(chart.svg().matches(">a.toml: A<tspan").count(), 20);
    assert_eq!(chart.svg().matches(">U</tspan></text>").count(), 20);
    assert_eq!(chart.svg().matches(">f<tspan").count(), 0);
}

#[test]
fn entries_without_label_are_not_listed() {
    let mut chart = unit_chart();
    let listed = size(&chart.svg());
    chart.series[0].label.clear();
    chart.bands[0].label = "  ".into();
    assert!(size(&chart.svg()).1 < listed.1);
}

#[test]
fn png_has_the_size_asked_for_and_is_not_blank() {
    let svg = unit_chart().svg();
    let bytes = png(&svg, 2.0).expect("a picture");
    assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n"));
    let pixmap = Pixmap::decode_png(&bytes).expect("valid PNG");
    assert_eq!(pixmap.width() as f32, size(&svg).0 * 2.0);
    let inked = pixmap.pixels().iter().filter(|p| p.red() < 128).count();
    assert!(inked > 1000, "{inked} dark pixels");
}

#[test]
fn png_has_the_characters_of_our_labels() {
    let draw = |label: char| {
        let style = text::Style { size: 12.0, bold: false, anchor: text::Anchor::Start };
        let mut svg = "<svg xmlns='http://www.w3.org/2000/svg' width='30' height='20' \
                       font-family='sans-serif'>"
            .to_owned();
        text::line(&mut svg, &label.to_string(), (5.0, 15.0), style);
        svg += "</svg>";
        let bytes = png(&svg, 1.0).expect("a picture");
        let pixmap = Pixmap::decode_png(&bytes).expect("valid PNG");
        pixmap.pixels().to_vec()
    };
    // What the two fonts show for a character that they lack.
    let missing = [draw('\u{10ffff}'), draw('\u{2bff}')];
    for c in "αβγδεστµμλφ√≤≥≈∞−×⊗∘∈→₀₁⁻⁵ᴸᵁ".chars() {
        let drawn = draw(c);
        assert!(drawn.iter().any(|p| p.alpha() > 100), "{c} is blank");
        assert!(!missing.contains(&drawn), "{c} is missing");
    }
}

#[test]
fn png_refuses_what_it_cannot_draw() {
    let svg = unit_chart().svg();
    for scale in [0.0, -1.0, f32::NAN, f32::INFINITY, 1e6] {
        assert!(matches!(png(&svg, scale), Err(ChartError::Size { .. })));
    }
    assert!(matches!(png("<svg", 1.0), Err(ChartError::Svg(_))));
}
