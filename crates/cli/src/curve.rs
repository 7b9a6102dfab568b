//! `dpsgd curve`: the trade-off functions of one or more runs as a picture.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use clap::Args;
use dpsgd_privacy::bounds::Bounds;
use dpsgd_privacy::{Adversary, PrivacyError, adversary, gaussian};

use crate::account::answer;
use crate::chart::{self, Axis, BLACK, Band, Chart, Dash, GREY, Marker, Scale, Series, Stroke};
use crate::rounding::up;
use crate::settings::{self, Question, Run, Settings, number};
use crate::{Failure, print};

/// The flags of `dpsgd curve`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  dpsgd curve --out curve.svg
  dpsgd curve --groups 256 --epochs 30 --sigma 1 --out curve.png
  dpsgd curve --config weak.toml --config strong.toml --out both.svg")]
pub struct CurveCommand {
    /// Where to write the picture; the ending .svg or .png decides the format
    #[arg(long, value_name = "FILE", help_heading = "Input and output")]
    out: PathBuf,
    /// Settings from a TOML file; repeated, the runs are overlaid
    #[arg(long, value_name = "FILE.toml", help_heading = "Input and output")]
    config: Vec<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

/// A picture's format.
#[derive(Clone, Copy)]
enum Format {
    Svg,
    Png,
}

/// Pixels per unit of the SVG.
const SCALE: f32 = 2.0;

impl CurveCommand {
    /// Draws and writes the picture.
    pub fn run(self) -> Result<(), Failure> {
        let format =
            match self.out.extension().and_then(|ending| ending.to_str()).map(str::to_lowercase).as_deref() {
                Some("svg") => Format::Svg,
                Some("png") => Format::Png,
                _ => {
                    return Err(Failure::Input(format!(
                        "{}: the file must end in .svg or .png",
                        self.out.display()
                    )));
                }
            };
        let runs = if self.config.is_empty() {
            vec![(String::new(), settings::resolve(&self.settings, None)?)]
        } else {
            let named = self.config.iter().map(|path| {
                let name =
                    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
                Ok((name, settings::resolve(&self.settings, Some(path))?))
            });
            named.collect::<Result<Vec<_>, Failure>>()?
        };
        let svg = drawn(&runs)?.svg();
        let bytes = match format {
            Format::Svg => svg.into_bytes(),
            Format::Png => chart::png(&svg, SCALE).map_err(|error| Failure::Machine(error.to_string()))?,
        };
        replace(&self.out, &bytes)?;
        let what = match runs.len() {
            1 => "the trade-off functions of the run".to_string(),
            n => format!("the trade-off functions of {n} runs"),
        };
        print(&format!("wrote {what} to {}\n", self.out.display()))
    }
}

/// Writes beside the target and renames, so that a reader never sees half a file.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Machine(format!("{}: {error}", path.display()));
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let beside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, path));
    written.map_err(|error| {
        // It may never have been made.
        let _ = fs::remove_file(&beside);
        failed(error)
    })
}

/// The curves of one run.
struct Curves {
    known: Option<Drawn>,
    blind: Option<Drawn>,
    /// f^L and f^U, where they are stated.
    band: Option<(Line, Line)>,
}

type Line = Vec<(f64, f64)>;

/// The curve against one adversary.
struct Drawn {
    line: Line,
    /// "ε ≤ 0.745 at δ = 1e-5".
    said: String,
    mu: Option<f64>,
}

/// The trade-off functions of one run.
pub fn of_run(run: &Run) -> Result<Chart, Failure> {
    drawn(&[(String::new(), run.clone())])
}

fn drawn(runs: &[(String, Run)]) -> Result<Chart, Failure> {
    let mut series = vec![Series {
        label: "random guess, 1 − α".to_string(),
        points: vec![(0.0, 1.0), (1.0, 0.0)],
        stroke: Stroke { colour: GREY, dash: Dash::Long, width: 1.2, marker: None },
    }];
    let mut bands = Vec::new();
    for (i, (name, run)) in runs.iter().enumerate() {
        let curves = Curves::of(run)?;
        if runs.len() == 1 {
            single(curves, &mut series, &mut bands);
        } else {
            overlaid(i, name, curves, &mut series);
        }
    }
    let axis = |label: &str| Axis { label: label.to_string(), scale: Scale::Linear, range: Some((0.0, 1.0)) };
    Ok(Chart {
        title: "The errors of the best possible attack".to_string(),
        subtitle: match runs {
            [(_, run)] => Some(summary(run)),
            _ => Some(
                "a curve further down leaks more: fewer misses at the same rate of false alarms".to_string(),
            ),
        },
        x: axis("false-alarm rate α of the attack"),
        y: axis("miss rate β = f(α)"),
        series,
        bands,
    })
}

fn single(curves: Curves, series: &mut Vec<Series>, bands: &mut Vec<Band>) {
    if let Some((lower, upper)) = curves.band {
        bands.push(Band { label: "fᴸ to fᵁ around A₁".to_string(), lower, upper, colour: 0 });
    }
    if let Some(known) = curves.known {
        let stroke = Stroke { colour: 0, dash: Dash::Solid, width: 2.6, marker: None };
        series.push(Series {
            label: format!("A₁ knows every batch, {}", known.said),
            points: known.line,
            stroke,
        });
        if let Some(mu) = known.mu {
            let stroke = Stroke { colour: BLACK, dash: Dash::Dotted, width: 1.6, marker: None };
            series.push(Series {
                label: format!("G_µ below A₁, µ = {}", up(mu, 4)),
                points: gaussian_line(mu),
                stroke,
            });
        }
    }
    if let Some(blind) = curves.blind {
        let stroke = Stroke { colour: 1, dash: Dash::Dashed, width: 2.2, marker: None };
        series.push(Series {
            label: format!("A₀ sees the updates only, {}", blind.said),
            points: blind.line,
            stroke,
        });
    }
}

const MARKERS: [Marker; 6] =
    [Marker::Circle, Marker::Square, Marker::Triangle, Marker::Diamond, Marker::TriangleDown, Marker::Cross];

fn overlaid(i: usize, name: &str, curves: Curves, series: &mut Vec<Series>) {
    // Black and grey have other uses.
    let colour = i % BLACK;
    let marker = Some(MARKERS[i % MARKERS.len()]);
    let mut push = |label: String, points, dash, width, marker| {
        series.push(Series { label, points, stroke: Stroke { colour, dash, width, marker } });
    };
    if let Some(known) = curves.known {
        push(format!("{name}: A₁, {}", known.said), known.line, Dash::Solid, 2.0, marker);
        if let Some(mu) = known.mu {
            push(
                format!("{name}: G_µ below A₁, µ = {}", up(mu, 4)),
                gaussian_line(mu),
                Dash::Dotted,
                1.4,
                None,
            );
        }
    }
    if let Some(blind) = curves.blind {
        push(format!("{name}: A₀, {}", blind.said), blind.line, Dash::Dashed, 2.0, marker);
    }
}

impl Curves {
    fn of(run: &Run) -> Result<Self, Failure> {
        let alphas = grid(&run.alphas);
        let (known, blind) = thread::scope(|scope| {
            let known = scope.spawn(|| Drawn::of(run, Adversary::A1, &alphas));
            let blind = Drawn::of(run, Adversary::A0, &alphas);
            (known.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), blind)
        });
        if let (Err(error), Err(_)) = (&known, &blind) {
            return Err(error.clone().into());
        }
        let band = Bounds::of(&run.mechanism).ok().map(|bounds| {
            let line = |f: &dyn Fn(f64) -> f64| alphas.iter().map(|&alpha| (alpha, f(alpha))).collect();
            (line(&|alpha| bounds.lower(alpha)), line(&|alpha| bounds.upper(alpha)))
        });
        Ok(Self { known: known.ok(), blind: blind.ok(), band })
    }
}

impl Drawn {
    fn of(run: &Run, adversary: Adversary, alphas: &[f64]) -> Result<Self, PrivacyError> {
        let curve = adversary::curve(&run.mechanism, adversary)?;
        let line = alphas.iter().map(|&alpha| Ok((alpha, curve.beta(alpha)?.lower)));
        let bound = up(answer(&*curve, run.question)?.upper, 4);
        Ok(Self {
            line: line.collect::<Result<_, PrivacyError>>()?,
            said: match run.question {
                Question::Epsilon { delta } => format!("ε ≤ {bound} at δ = {}", number(delta)),
                Question::Delta { epsilon } => format!("δ ≤ {bound} at ε = {}", number(epsilon)),
            },
            mu: match adversary {
                Adversary::A1 => {
                    curve.mu_on_default_range().ok().map(|(mu, _)| mu.upper).filter(|mu| mu.is_finite())
                }
                Adversary::A0 => None,
            },
        })
    }
}

/// About 200 false-alarm rates, finer near 0 and 1, where the curves bend, and those asked for.
fn grid(asked: &[f64]) -> Vec<f64> {
    const STEPS: i32 = 200;
    let eased = |i: i32| {
        let x = f64::from(i) / f64::from(STEPS);
        // Smoothstep of order two: the spacing vanishes like x² at both ends.
        x * x * x * (10.0 - 15.0 * x + 6.0 * x * x)
    };
    let mut alphas: Vec<f64> = (0..=STEPS).map(|i| eased(i).clamp(0.0, 1.0)).collect();
    alphas.extend_from_slice(asked);
    alphas.sort_by(f64::total_cmp);
    alphas.dedup();
    alphas
}

fn gaussian_line(mu: f64) -> Line {
    grid(&[]).into_iter().map(|alpha| (alpha, gaussian::tradeoff(mu, alpha))).collect()
}

fn summary(run: &Run) -> String {
    let mechanism = &run.mechanism;
    let parts: Vec<String> = mechanism
        .phases()
        .iter()
        .map(|phase| {
            format!(
                "{}, {} rounds, σ = {} (2σ = {})",
                phase.sampling().name(),
                phase.rounds(),
                number(phase.sigma()),
                number(phase.noise_multiplier())
            )
        })
        .collect();
    format!("{}; {} neighbours, g = {}", parts.join("; then "), mechanism.neighbours(), mechanism.differing())
}
