//! `dpsgd audit training DIR`: the training of a run once more, with canaries, and what they prove.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use dpsgd_audit::canaries::{Canaried, Canary};
use dpsgd_audit::one_run::{self, Proved};
use dpsgd_audit::probe::Permit;
use dpsgd_engine::kernel::Level;
use dpsgd_engine::{Samples, Target};
use dpsgd_privacy::mechanism::Neighbours;
use dpsgd_privacy::{Adversary, adversary};
use dpsgd_train::native::Native;
use dpsgd_train::{Model, Purpose, Randomness, Trainer};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::chart::{Axis, Chart, Dash, Marker, Scale, Series, Stroke};
use crate::html::{self, Figure};
use crate::rounding::{down, up};
use crate::settings::number;
use crate::statement::{subscript, wrapped};
use crate::train::progress::tell;
use crate::train::samples::Labelled;
use crate::train::setup::Setup;
use crate::train::{directory, outputs};
use crate::{Failure, json as shown, print};

/// The flags of `dpsgd audit training`.
#[derive(Args)]
#[command(after_help = "\
A second model is trained with the settings of the run and thrown away; the run itself is not touched. In it some \
training samples are replaced by canaries, each in one of two forms by a fair coin. From what the training releases \
the coins are guessed, and from the number of right guesses follows a lower bound on ε (Steinke, Nasr, Jagielski 2023) \
and on µ.

What is printed is a function of that second run: publishing it costs its guarantee once more.

Examples:
  dpsgd audit training runs/mnist-lenet5-1
  dpsgd audit training runs/mnist-lenet5-1 --kind label --canaries 2000 --out audit")]
pub struct Training {
    /// The directory of the run
    directory: PathBuf,
    /// Canaries
    #[arg(long, value_name = "n", default_value_t = 1000)]
    canaries: u64,
    /// What a canary is, and what the auditor sees
    #[arg(long, value_enum, default_value_t = Kind::Gradient)]
    kind: Kind,
    /// The probability with which the lower bounds hold
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    confidence: f64,
    /// Write audit-training.html and audit-training.json here
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Threads; the result does not depend on it [default: all cores]
    #[arg(long, value_name = "n")]
    threads: Option<usize>,
    /// Print one JSON object instead of a statement
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

/// What goes with every output: it comes from private data.
const COST: &str = "What is said here is a function of a second run on the same data: publishing it costs the guarantee of the run once more.";

/// The most values that are kept: canaries times rounds, four bytes each.
const MOST_VALUES: u64 = 1 << 29;

/// What a canary is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A gradient of its own coordinate, up or down; the auditor sees every update, as A₀ does
    Gradient,
    /// A sample with its label or with a wrong one; the auditor sees the final model only
    Label,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Gradient => "gradient",
            Kind::Label => "label",
        }
    }
}

/// Training samples some of which have another label.
struct Relabelled<'a> {
    samples: Labelled<'a>,
    labels: HashMap<u32, u32>,
}

impl Samples for Relabelled<'_> {
    fn count(&self) -> usize {
        self.samples.count()
    }
    fn copy_input(&self, index: u32, out: &mut [f32]) {
        self.samples.copy_input(index, out);
    }
    fn target(&self, index: u32) -> Target<'_> {
        match self.labels.get(&index) {
            Some(label) => Target::Class(*label),
            None => self.samples.target(index),
        }
    }
}

/// A δ at which both sides are shown.
struct Point {
    delta: f64,
    /// Claimed: at most.
    upper: f64,
    /// Proved: at least.
    lower: f64,
}

impl Training {
    /// Trains, guesses and says what that proves.
    pub fn run(self) -> Result<(), Failure> {
        if !(self.confidence > 0.5 && self.confidence < 1.0) {
            return Err(Failure::Input(format!("confidence = {}: above 0.5 and below 1", self.confidence)));
        }
        let mut setup = outputs::setup(&self.directory, self.threads)?;
        let constants = directory::saved_constants(&self.directory)?;
        let samples = setup.inputs.split.train.len();
        let most = samples.min(setup.network.dimension()) as u64;
        if !(100..=most).contains(&self.canaries) {
            return Err(Failure::Input(format!(
                "canaries = {}: between 100 and {most} (each takes a sample and a coordinate)",
                self.canaries
            )));
        }
        let values = self.canaries.saturating_mul(setup.plan.rounds());
        if self.kind == Kind::Gradient && values > MOST_VALUES {
            return Err(Failure::Input(format!(
                "canaries = {}: with {} rounds at most {} (every canary is followed through every round)",
                self.canaries,
                setup.plan.rounds(),
                MOST_VALUES / setup.plan.rounds()
            )));
        }
        if self.kind == Kind::Label && setup.inputs.split.train.classes().is_none_or(|classes| classes < 2) {
            return Err(Failure::Input("kind = label: the data have no labels to exchange".into()));
        }
        setup.inputs.normalise_again(&setup.settings, constants.as_ref())?;
        let randomness = Randomness::from_system().map_err(machine)?;
        let (slots, coins) = self.drawn(samples, &randomness);
        let scores = match self.kind {
            Kind::Gradient => self.gradients(&setup, &slots, &coins, randomness)?,
            Kind::Label => self.labels(&setup, &slots, &coins, randomness)?,
        };
        let mechanism = &setup.run.mechanism;
        let claimed = adversary::curve(mechanism, setup.budget.adversary)?;
        let mut points = Vec::new();
        for exponent in [-2, -3, -4, -5, -6, -8, -10] {
            let delta = 10f64.powi(exponent);
            let upper = claimed.epsilon(delta)?.upper;
            let lower = one_run::prove(&scores, &coins, delta, self.confidence).epsilon;
            points.push(Point { delta, upper, lower });
        }
        let delta = setup.budget.delta;
        let proved = one_run::prove(&scores, &coins, delta, self.confidence);
        let upper = claimed.epsilon(delta)?.upper;
        self.tell(&setup, &points, (delta, upper, proved))
    }

    /// Which samples are canaries, and the coin of each.
    fn drawn(&self, samples: usize, randomness: &Randomness) -> (Vec<u32>, Vec<bool>) {
        let mut stream = randomness.stream(Purpose::Splitting, 0);
        let mut all: Vec<u32> = (0..samples as u32).collect();
        for first in 0..self.canaries as usize {
            let other = first + stream.below((samples - first) as u32) as usize;
            all.swap(first, other);
        }
        all.truncate(self.canaries as usize);
        let coins = all.iter().map(|_| stream.below(2) == 1).collect();
        (all, coins)
    }

    fn gradients(
        &self,
        setup: &Setup,
        slots: &[u32],
        coins: &[bool],
        randomness: Randomness,
    ) -> Result<Vec<f64>, Failure> {
        let samples = Labelled(&setup.inputs.split.train);
        let group_size = setup.settings.group_size.unwrap_or(1) as usize;
        let model = Native::new(&setup.network, &samples, group_size).map_err(machine)?;
        // Long enough that a group with a canary hands over hardly anything else, whatever the others are.
        let bound = setup.plan.config().clipping.start.max(1.0);
        let long = (1e3 * bound * group_size as f64) as f32;
        // Where a sample is added or removed, its other form is to be absent: it adds nothing.
        let other = match setup.run.mechanism.neighbours() {
            Neighbours::AddRemove => 0.0,
            Neighbours::Substitute => -long,
        };
        let stride = model.dimension() / slots.len();
        let mut stream = randomness.stream(Purpose::Splitting, 1);
        let places: Vec<usize> =
            (0..slots.len()).map(|i| i * stride + stream.below(stride as u32) as usize).collect();
        let canaries = slots.iter().zip(&places).zip(coins).map(|((slot, coordinate), coin)| {
            (*slot, Canary { coordinate: *coordinate, value: if *coin { long } else { other } })
        });
        let model = Canaried::new(&model, canaries.collect());
        let phase = &setup.run.mechanism.phases()[0];
        let divisor = setup.plan.divisor(phase);
        // What every canary's coordinate showed in every round, in units of C.
        let mut seen: Vec<Vec<f32>> = vec![Vec::new(); slots.len()];
        self.train(setup, &model, randomness, |update, bound| {
            for (seen, place) in seen.iter_mut().zip(&places) {
                seen.push((f64::from(update[*place]) * divisor / bound) as f32);
            }
        })?;
        let ratio = one_run::Ratio {
            rate: setup.samples_per_round() / samples.count() as f64,
            deviation: 2.0 * phase.sigma(),
            other: f64::from(other / long),
        };
        Ok(seen.iter().map(|rounds| ratio.score(rounds)).collect())
    }

    fn labels(
        &self,
        setup: &Setup,
        slots: &[u32],
        coins: &[bool],
        randomness: Randomness,
    ) -> Result<Vec<f64>, Failure> {
        let data = &setup.inputs.split.train;
        let classes = data.classes().unwrap_or(2) as u32;
        let mut stream = randomness.stream(Purpose::Splitting, 2);
        let wrong: Vec<(u32, u32)> = slots
            .iter()
            .map(|slot| {
                let label = data.label(*slot as usize).unwrap_or(0);
                (label, (label + 1 + stream.below(classes - 1)) % classes)
            })
            .collect();
        let labels = slots.iter().zip(&wrong).zip(coins).filter(|(_, coin)| **coin);
        let labels = labels.map(|((slot, labels), _)| (*slot, labels.1)).collect();
        let samples = Relabelled { samples: Labelled(data), labels };
        let group_size = setup.settings.group_size.unwrap_or(1) as usize;
        let model = Native::new(&setup.network, &samples, group_size).map_err(machine)?;
        let weights = self.train(setup, &model, randomness, |_, _| {})?;
        let mut worker = dpsgd_engine::Worker::new(&setup.network, &samples, 1, Level::best());
        worker.weights_mut().copy_from_slice(&weights);
        // The output for the wrong label over that for the right one: the likelihood ratio of a softmax.
        let score = |(slot, (right, wrong)): (&u32, &(u32, u32))| {
            let outputs = worker.outputs(*slot);
            let at = |label: u32| outputs.get(label as usize).copied().unwrap_or_default();
            f64::from(at(*wrong)) - f64::from(at(*right))
        };
        Ok(slots.iter().zip(&wrong).map(score).collect())
    }

    /// Trains as the run did, with fresh randomness; the final weights.
    fn train<M: Model>(
        &self,
        setup: &Setup,
        model: &M,
        randomness: Randomness,
        mut see: impl FnMut(&[f32], f64),
    ) -> Result<Vec<f32>, Failure> {
        let mut stream = randomness.stream(Purpose::Initialisation, 0);
        let weights = setup.network.initial(|| stream.unit() as f32);
        let mut trainer = Trainer::new(setup.plan.clone(), model, weights, randomness).map_err(machine)?;
        let bar = if self.quiet { ProgressBar::hidden() } else { ProgressBar::new(setup.plan.rounds()) };
        // The template is a constant that was tried; a default bar is as true.
        let style =
            ProgressStyle::with_template("training with canaries {bar:30.cyan/dim} {pos}/{len} · {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━━─"));
        while !trainer.finished() {
            // The second run is thrown away: nothing resumes it.
            let round = trainer.round(&mut Permit).map_err(machine)?;
            see(round.update, round.bound);
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(trainer.weights().to_vec())
    }

    fn tell(&self, setup: &Setup, points: &[Point], found: (f64, f64, Proved)) -> Result<(), Failure> {
        let (delta, upper, proved) = found;
        let contradicted = proved.epsilon > upper;
        let who = setup.budget.adversary;
        let value = json!({
            "run": self.directory.display().to_string(),
            "kind": self.kind.name(),
            "canaries": self.canaries,
            "guesses": proved.by.guesses,
            "correct": proved.by.correct,
            "confidence": self.confidence,
            "delta": delta,
            "epsilon_lower": proved.epsilon,
            "mu_lower": proved.mu,
            "epsilon_claimed": upper,
            "adversary": who.name(),
            "contradiction": contradicted,
            "cost": COST,
            "curve": points.iter().map(|point| json!({
                "delta": point.delta, "epsilon_claimed": point.upper, "epsilon_lower": point.lower,
            })).collect::<Vec<_>>(),
        });
        if let Some(out) = &self.out {
            self.write(out, setup, points, &value)?;
        }
        if self.json {
            print(&shown::line(&value))?;
        } else {
            print(&self.statement(setup, points, found))?;
        }
        if contradicted {
            return Err(Failure::Machine(format!(
                "the run leaks more than is claimed: ε ≥ {} was shown, ε ≤ {} is claimed (by chance with probability {})",
                down(proved.epsilon, 4),
                up(upper, 4),
                number(1.0 - self.confidence)
            )));
        }
        Ok(())
    }

    fn statement(
        &self,
        setup: &Setup,
        points: &[Point],
        (delta, upper, proved): (f64, f64, Proved),
    ) -> String {
        let who = subscript(setup.budget.adversary);
        let mut text = "WHAT WAS SHOWN AND WHAT IS CLAIMED\n".to_string();
        let _ = writeln!(
            text,
            "  {} ≤ ε ≤ {} at δ = {}: shown with confidence {}, claimed against {who}",
            down(proved.epsilon, 4),
            up(upper, 4),
            number(delta),
            number(self.confidence)
        );
        let _ = writeln!(text, "  µ ≥ {} was shown", down(proved.mu, 4));
        let _ = writeln!(
            text,
            "  {} canaries ({}), {} guesses, {} of them right",
            self.canaries,
            self.kind.name(),
            proved.by.guesses,
            proved.by.correct
        );
        text.push_str("\n  δ          shown, ε ≥   claimed, ε ≤\n");
        for point in points {
            let _ = writeln!(
                text,
                "  {:<9}  {:<11}  {}",
                number(point.delta),
                down(point.lower, 4),
                up(point.upper, 4)
            );
        }
        text.push_str("\nWHAT IT MEANS\n");
        text.push_str(&wrapped(self.meaning(setup), 2));
        text.push_str(&wrapped(COST, 2));
        text
    }

    fn meaning(&self, setup: &Setup) -> &'static str {
        match (self.kind, setup.budget.adversary) {
            (Kind::Label, _) => {
                "The lower bound is what an attacker proves who saw the final model only and put wrong labels into the data. \
                 That it is far below the claim is usual: the claim holds against everybody who sees all updates, and for the worst data."
            }
            (Kind::Gradient, Adversary::A0 | Adversary::A1) => {
                "The lower bound is what an attacker proves who saw every update and chose its samples' gradients, but did \
                 not know the batches. One run with few canaries cannot prove all that is there: the gap to the claim is not evidence that the claim is loose."
            }
        }
    }

    fn write(
        &self,
        out: &Path,
        setup: &Setup,
        points: &[Point],
        value: &serde_json::Value,
    ) -> Result<(), Failure> {
        let failed =
            |path: &Path, error: std::io::Error| Failure::Machine(format!("{}: {error}", path.display()));
        std::fs::create_dir_all(out).map_err(|error| failed(out, error))?;
        let side = |label: &str, colour, dash, marker, of: &dyn Fn(&Point) -> f64| Series {
            label: label.to_string(),
            points: points.iter().map(|point| (point.delta, of(point))).collect(),
            stroke: Stroke { colour, dash, width: 2.0, marker: Some(marker) },
        };
        let chart = Chart {
            title: "What was shown and what is claimed".into(),
            subtitle: None,
            x: Axis { label: "δ".into(), scale: Scale::Log10, range: None },
            y: Axis { label: "ε".into(), scale: Scale::Linear, range: None },
            series: vec![
                side("claimed: at most", 0, Dash::Solid, Marker::Circle, &|point| point.upper),
                side("shown: at least", 1, Dash::Dashed, Marker::Triangle, &|point| point.lower),
            ],
            bands: Vec::new(),
        };
        let figure = Figure::new(
            &chart,
            (560.0, 320.0),
            "With the stated confidence the truth for this training lies between the curves.",
        );
        let delta = value["delta"].as_f64().unwrap_or_default();
        let ends =
            points.iter().map(|point| vec![number(point.delta), down(point.lower, 4), up(point.upper, 4)]);
        let header = ["δ", "shown: ε at least", "claimed: ε at most"].map(String::from);
        let body = format!(
            "<header>\n<h1>Training audit</h1>\n<p class=\"lead\">{}</p>\n</header>\n{}{}{}{}",
            html::escape(&format!(
                "{} canaries ({}) in one training run of {}; confidence {}.",
                self.canaries,
                self.kind.name(),
                setup.net,
                number(self.confidence)
            )),
            html::section("At every δ", &figure.html(true)),
            html::table(&header, &ends.collect::<Vec<_>>()),
            html::section("What it means", &(html::paragraph(self.meaning(setup)) + &html::paragraph(COST))),
            html::paragraph(&format!("δ of the run: {}.", number(delta))),
        );
        let page =
            html::page("Training audit", &body, "Claims are rounded up, what was shown is rounded down.");
        for (name, text) in [("audit-training.html", page), ("audit-training.json", shown::line(value))] {
            let path = out.join(name);
            std::fs::write(&path, text).map_err(|error| failed(&path, error))?;
        }
        if !self.quiet {
            tell(&format!("wrote {}", out.join("audit-training.html").display()));
        }
        Ok(())
    }
}

fn machine(error: impl std::fmt::Display) -> Failure {
    Failure::Machine(error.to_string())
}
