//! The trade-off functions of one or more runs as charts.
//!
//! Two panels show the same curves. The left one has the error rates as they are; the right one has the
//! detection rate 1 − β over the false-alarm rate α, both logarithmic, where the attacks that matter are:
//! those with few false alarms.

use std::thread;

use dpsgd_privacy::account::Question;
use dpsgd_privacy::bounds::Bounds;
use dpsgd_privacy::mechanism::{Draw, FixedSizes, Mechanism, Phase};
use dpsgd_privacy::{Adversary, PrivacyError, adversary, gaussian};

use crate::chart::{self, Axis, BLACK, Band, Chart, Dash, GREY, Marker, Scale, Series, Stroke};
use crate::rounding::up;
use crate::text::number;

/// The smallest false-alarm rate of the logarithmic panel.
const SMALLEST: f64 = 1e-5;

/// The most curves whose legend goes below a panel.
const MOST_BELOW: usize = 5;

/// A run to draw, and the question its legend answers.
#[derive(Clone, Debug)]
pub struct CurveRun<'a> {
    /// What tells it from the others: the name of a file, say.
    pub name: String,
    /// The run.
    pub mechanism: &'a Mechanism,
    /// ε or δ.
    pub question: Question,
    /// False-alarm rates at which the curves have a point.
    pub alphas: &'a [f64],
}

/// The trade-off functions of some runs.
#[derive(Clone, Debug)]
pub struct Tradeoff {
    /// Misses over false alarms, with the legend of both panels.
    pub linear: Chart,
    /// Detections over false alarms, both logarithmic.
    pub logarithmic: Chart,
}

impl Tradeoff {
    /// Computes and draws the curves. One run has its G_µ and its band; several are named by what
    /// differs in their settings.
    ///
    /// # Guarantee
    /// Each curve is the certified lower end of the trade-off function: no attack has fewer misses than
    /// drawn.
    ///
    /// # Errors
    /// If no theorem covers a run against either adversary, or its curves could not be computed.
    pub fn of(runs: &[CurveRun]) -> Result<Self, PrivacyError> {
        let mut drawing = Drawing::new();
        let names = distinguished(runs);
        for (i, (run, name)) in runs.iter().zip(&names).enumerate() {
            let curves = Curves::of(run)?;
            let short = if run.name.is_empty() { name } else { &run.name };
            if runs.len() == 1 { drawing.single(curves) } else { drawing.overlaid(i, (name, short), curves) }
        }
        let subtitle = match runs {
            [run] => described(run.mechanism),
            _ => "A lower curve leaks more: fewer misses at the same false-alarm rate.".to_string(),
        };
        Ok(drawing.finish(subtitle))
    }

    /// Both panels side by side, with one legend: below the left panel, or beside the right one if it is
    /// long.
    pub fn svg(&self) -> String {
        let (mut left, mut right) = (self.linear.clone(), self.logarithmic.clone());
        if left.series.len() > MOST_BELOW {
            for (left, right) in left.series.iter_mut().zip(&mut right.series) {
                right.label = std::mem::take(&mut left.label);
            }
        }
        chart::side_by_side(&[left.svg(), right.svg()])
    }
}

type Line = Vec<(f64, f64)>;

/// The series of both panels.
struct Drawing {
    linear: Vec<Series>,
    logarithmic: Vec<Series>,
    bands: Vec<Band>,
}

impl Drawing {
    fn new() -> Self {
        let mut drawing = Self { linear: Vec::new(), logarithmic: Vec::new(), bands: Vec::new() };
        let stroke = Stroke { colour: GREY, dash: Dash::Long, width: 1.2, marker: None };
        let guess = grid(&[]).into_iter().map(|alpha| (alpha, 1.0 - alpha)).collect();
        drawing.push("random guess, β = 1 − α".to_string(), guess, stroke);
        drawing
    }

    fn push(&mut self, label: String, points: Line, stroke: Stroke) {
        let detected = points.iter().map(|&(alpha, beta)| (alpha, 1.0 - beta)).collect();
        self.logarithmic.push(Series { label: String::new(), points: detected, stroke });
        self.linear.push(Series { label, points, stroke });
    }

    fn single(&mut self, curves: Curves) {
        if let Some((lower, upper)) = curves.band {
            self.bands.push(Band { label: "fᴸ to fᵁ around A₁".to_string(), lower, upper, colour: 0 });
        }
        if let Some(known) = curves.known {
            let stroke = Stroke { colour: 0, dash: Dash::Solid, width: 2.6, marker: None };
            self.push(format!("A₁ knows every batch, {}", known.said), known.line, stroke);
            if let Some(mu) = known.mu {
                let stroke = Stroke { colour: BLACK, dash: Dash::Dotted, width: 1.6, marker: None };
                self.push(format!("G_µ below A₁, µ = {}", up(mu, 4)), gaussian_line(mu), stroke);
            }
        }
        if let Some(blind) = curves.blind {
            let stroke = Stroke { colour: 1, dash: Dash::Dashed, width: 2.2, marker: None };
            self.push(format!("A₀ sees the updates only, {}", blind.said), blind.line, stroke);
        }
    }

    /// The first curve of a run has its whole name in the legend, the others the short one.
    fn overlaid(&mut self, i: usize, (name, short): (&str, &str), curves: Curves) {
        let mut name = name;
        // Black and grey have other uses.
        let colour = i % BLACK;
        let marker = Some(MARKERS[i % MARKERS.len()]);
        if let Some(known) = curves.known {
            let stroke = Stroke { colour, dash: Dash::Solid, width: 2.0, marker };
            self.push(format!("{name}: A₁, {}", known.said), known.line, stroke);
            name = short;
            if let Some(mu) = known.mu {
                let stroke = Stroke { colour, dash: Dash::Dotted, width: 1.4, marker: None };
                self.push(format!("{name}: G_µ below A₁, µ = {}", up(mu, 4)), gaussian_line(mu), stroke);
            }
        }
        if let Some(blind) = curves.blind {
            let stroke = Stroke { colour, dash: Dash::Dashed, width: 2.0, marker };
            self.push(format!("{name}: A₀, {}", blind.said), blind.line, stroke);
        }
    }

    fn finish(self, subtitle: String) -> Tradeoff {
        let unit =
            |label: &str| Axis { label: label.to_string(), scale: Scale::Linear, range: Some((0.0, 1.0)) };
        let decades = |label: &str| Axis {
            label: label.to_string(),
            scale: Scale::Log10,
            range: Some((SMALLEST, 1.0)),
        };
        Tradeoff {
            linear: Chart {
                title: "The errors of the best possible attack".to_string(),
                subtitle: Some(subtitle),
                x: unit("false-alarm rate α of the attack"),
                y: unit("miss rate β = f(α)"),
                series: self.linear,
                bands: self.bands,
            },
            logarithmic: Chart {
                title: "The same where false alarms are rare".to_string(),
                subtitle: Some("A higher curve leaks more: more is detected at the same rate.".to_string()),
                x: decades("false-alarm rate α"),
                y: decades("detection rate 1 − β, at most"),
                series: self.logarithmic,
                bands: Vec::new(),
            },
        }
    }
}

const MARKERS: [Marker; 6] =
    [Marker::Circle, Marker::Square, Marker::Triangle, Marker::Diamond, Marker::TriangleDown, Marker::Cross];

/// The curves of one run.
struct Curves {
    known: Option<Drawn>,
    blind: Option<Drawn>,
    /// f^L and f^U, where they are stated.
    band: Option<(Line, Line)>,
}

impl Curves {
    fn of(run: &CurveRun) -> Result<Self, PrivacyError> {
        let alphas = grid(run.alphas);
        let (known, blind) = thread::scope(|scope| {
            let known = scope.spawn(|| Drawn::of(run, Adversary::A1, &alphas));
            let blind = Drawn::of(run, Adversary::A0, &alphas);
            (known.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), blind)
        });
        if let (Err(error), Err(_)) = (&known, &blind) {
            return Err(error.clone());
        }
        let band = Bounds::of(run.mechanism).ok().map(|bounds| {
            let line = |f: &dyn Fn(f64) -> f64| alphas.iter().map(|&alpha| (alpha, f(alpha))).collect();
            (line(&|alpha| bounds.lower(alpha)), line(&|alpha| bounds.upper(alpha)))
        });
        Ok(Self { known: known.ok(), blind: blind.ok(), band })
    }
}

/// The curve against one adversary.
struct Drawn {
    line: Line,
    /// "ε ≤ 0.745 at δ = 1e-5".
    said: String,
    mu: Option<f64>,
}

impl Drawn {
    fn of(run: &CurveRun, adversary: Adversary, alphas: &[f64]) -> Result<Self, PrivacyError> {
        let curve = adversary::curve(run.mechanism, adversary)?;
        let line = alphas.iter().map(|&alpha| Ok((alpha, curve.beta(alpha)?.lower)));
        let bound = up(run.question.answer(&*curve)?.upper, 4);
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

/// About 240 false-alarm rates: finer near 0 and 1, where the curves bend, even over the decades of the
/// logarithmic panel, and those asked for.
fn grid(asked: &[f64]) -> Vec<f64> {
    const STEPS: i32 = 200;
    const PER_DECADE: i32 = 8;
    let eased = |i: i32| {
        let x = f64::from(i) / f64::from(STEPS);
        // Smoothstep of order two: the spacing vanishes like x² at both ends.
        x * x * x * (10.0 - 15.0 * x + 6.0 * x * x)
    };
    let decades = SMALLEST.log10();
    let steps = (-decades * f64::from(PER_DECADE)) as i32;
    let mut alphas: Vec<f64> = (0..=STEPS).map(|i| eased(i).clamp(0.0, 1.0)).collect();
    alphas.extend((0..steps).map(|i| 10_f64.powf(decades + f64::from(i) / f64::from(PER_DECADE))));
    alphas.extend_from_slice(asked);
    alphas.sort_by(f64::total_cmp);
    alphas.dedup();
    alphas
}

fn gaussian_line(mu: f64) -> Line {
    grid(&[]).into_iter().map(|alpha| (alpha, gaussian::tradeoff(mu, alpha))).collect()
}

/// The settings of a run in a line.
fn described(mechanism: &Mechanism) -> String {
    let phase = |phase: &Phase| {
        format!(
            "{}, {} rounds, σ = {} (2σ = {})",
            phase.sampling().name(),
            phase.rounds(),
            number(phase.sigma()),
            number(phase.noise_multiplier())
        )
    };
    let phases: Vec<String> = mechanism.phases().iter().map(phase).collect();
    let (neighbours, g) = (mechanism.neighbours(), mechanism.differing());
    format!("{}; {neighbours} neighbours, g = {g}", phases.join("; then "))
}

/// A name for each run: the settings in which it differs from the others, and the name it was given.
fn distinguished(runs: &[CurveRun]) -> Vec<String> {
    let settings: Vec<Vec<String>> = runs.iter().map(|run| settings(run.mechanism)).collect();
    let differs = |i: usize| settings.iter().any(|of| of.get(i) != settings[0].get(i));
    let own = |of: &[String]| -> Vec<String> {
        of.iter().enumerate().filter(|(i, _)| differs(*i)).map(|(_, setting)| setting.clone()).collect()
    };
    let named = |(run, of): (&CurveRun, &Vec<String>)| match own(of).join(", ") {
        said if said.is_empty() => run.name.clone(),
        said if run.name.is_empty() => said,
        said => format!("{} ({said})", run.name),
    };
    runs.iter().zip(&settings).map(named).collect()
}

/// What a run is made of, a text for each setting and the same number of them for each phase.
fn settings(mechanism: &Mechanism) -> Vec<String> {
    let mut said =
        vec![format!("{} neighbours", mechanism.neighbours()), format!("g = {}", mechanism.differing())];
    for phase in mechanism.phases() {
        said.push(phase.sampling().name().to_string());
        said.push(match phase.sampling().sizes() {
            Some(FixedSizes { samples, groups, group_size }) => {
                format!("{groups}×{group_size} of {samples} samples")
            }
            None => match phase.sampling().draw() {
                Draw::EveryRound => format!("rate {}", number(phase.sampling().share_of_data())),
                Draw::EveryEpoch => {
                    let rounds = phase.sampling().rounds_per_epoch();
                    let cells = phase.sampling().groups().map(|groups| format!(" of {groups} cells"));
                    format!("{rounds} rounds{} an epoch", cells.unwrap_or_default())
                }
            },
        });
        said.push(format!("{} rounds", phase.rounds()));
        said.push(format!("σ = {}", number(phase.sigma())));
        said.push(if phase.filtered() { "filtered" } else { "unfiltered" }.to_string());
    }
    said
}

#[cfg(test)]
mod tests {
    use dpsgd_privacy::mechanism::{Length, NoiseScale, PhaseConfig, RunConfig, Sampling};

    use super::*;

    fn mechanism(sigma: f64) -> Mechanism {
        RunConfig::single(PhaseConfig {
            sampling: Sampling::Subsample { samples: 1000, groups: 10, group_size: 1 },
            length: Length::Rounds(100),
            noise: NoiseScale::Sigma(sigma),
            filtered: false,
        })
        .check()
        .unwrap()
    }

    #[test]
    fn overlaid_runs_are_named_by_what_differs() {
        let mechanisms = [mechanism(1.0), mechanism(2.0)];
        let runs: Vec<CurveRun> = ["a", ""]
            .iter()
            .zip(&mechanisms)
            .map(|(name, mechanism)| CurveRun {
                name: name.to_string(),
                mechanism,
                question: Question::Epsilon { delta: 1e-5 },
                alphas: &[],
            })
            .collect();
        assert_eq!(distinguished(&runs), ["a (σ = 1)", "σ = 2"]);
        assert_eq!(distinguished(&runs[..1]), ["a"]);
        let svg = Tradeoff::of(&runs).unwrap().svg();
        assert!(svg.contains("a (σ = 1): A") && svg.contains(">σ = 2: A") && svg.contains(">a: A"), "{svg}");
    }

    /// The logarithmic panel shows what the linear one shows.
    #[test]
    fn both_panels_have_the_same_curves() {
        let mechanism = mechanism(1.0);
        let run = CurveRun {
            name: String::new(),
            mechanism: &mechanism,
            question: Question::Epsilon { delta: 1e-5 },
            alphas: &[0.01],
        };
        let drawn = Tradeoff::of(&[run]).unwrap();
        assert_eq!(drawn.linear.series.len(), drawn.logarithmic.series.len());
        for (linear, logarithmic) in drawn.linear.series.iter().zip(&drawn.logarithmic.series) {
            assert_eq!(linear.points.len(), logarithmic.points.len());
            for (miss, detected) in linear.points.iter().zip(&logarithmic.points) {
                assert_eq!((miss.0, 1.0 - miss.1), *detected);
            }
        }
    }
}
