//! What this software reaches at the same privacy: ε = 1, 3 and 8 at δ = 1e-5 against A₀, the best setting
//! that was found against the paper's settings with σ calibrated to the same ε.

mod show;

use dpsgd::settings::OuterName;
use dpsgd::{Error, RawSettings};
use dpsgd_data::Known;
use dpsgd_data::features::Features;
use dpsgd_privacy::mechanism::{Neighbours, SamplingKind};
use dpsgd_report::text::number;

use crate::experiment::{AddedNoise, Clipping, Experiment, Portion, paper, size};
use crate::laboratory::{Laboratory, calibrated};
use crate::panels::{Cell, GridSize, furthest};
use crate::progress::Work;
use crate::section::Section;
use crate::store::ExperimentOutcome;

/// ε.
const TARGETS: [f64; 3] = [1.0, 3.0, 8.0];

/// A setting of ours: individual clipping with a C below the norm of nearly every gradient, so that η alone
/// decides how long a step is.
#[derive(Clone, Copy)]
struct Ours {
    /// m; s = 1.
    groups: u64,
    epochs: u64,
    step: f64,
}

/// C.
const CLIP: f64 = 0.1;

/// What is tried.
fn candidates(data: Known, epsilon: f64, quick: bool) -> Vec<Ours> {
    let steps =
        |groups, epochs, steps: &[f64]| steps.iter().map(|&step| Ours { groups, epochs, step }).collect();
    match (data == Known::Cifar10, epsilon) {
        _ if quick => vec![Ours { groups: 256, epochs: 3, step: 2.0 }],
        (false, e) if e < 2.0 => steps(4096, 30, &[0.5, 1.0, 2.0]),
        (false, e) if e < 5.0 => steps(4096, 40, &[0.5, 1.0, 2.0, 4.0]),
        (false, _) => steps(4096, 60, &[1.0, 2.0, 4.0, 8.0]),
        (true, e) if e < 2.0 => steps(8192, 40, &[0.25, 0.5, 1.0]),
        (true, e) if e < 5.0 => steps(8192, 60, &[0.5, 1.0, 2.0]),
        (true, _) => steps(8192, 80, &[0.5, 1.0, 2.0, 4.0]),
    }
}

/// One line of the table.
struct Line {
    data: Known,
    epsilon: f64,
    what: String,
    outcome: Option<ExperimentOutcome>,
    epochs: u64,
}

/// A candidate and its accuracy on held-out samples.
struct Tried {
    data: Known,
    epsilon: f64,
    ours: Ours,
    accuracy: Option<f64>,
}

/// A candidate learns from the first training samples and is measured on the last.
fn held_out(data: Known, effort: &GridSize) -> Portion {
    let last = if effort.quick { 1_000 } else { size(data) / 6 };
    Portion::HeldOut { first: effort.part.samples(data).min(size(data) - last), last }
}

/// A linear model on the scattering transform, large batches of single samples, momentum.
fn our_experiment(
    data: Known,
    epsilon: f64,
    ours: Ours,
    sampling: SamplingKind,
    part: Portion,
    seed: u64,
) -> Result<Experiment, Error> {
    let settings = RawSettings {
        data: Some(data.name().to_string()),
        features: Some(Features::Scattering),
        sampling: Some(sampling),
        // The paper's relation for both samplers, so that ε is the same promise; subsampling has no other.
        neighbours: (sampling == SamplingKind::Allocate).then_some(Neighbours::Substitute),
        groups: Some(ours.groups),
        group_size: Some(1),
        clip: Some(CLIP),
        step: Some(ours.step),
        outer: Some(OuterName::Momentum),
        seed: Some(seed),
        ..RawSettings::default()
    };
    calibrated(Experiment { settings, noise: AddedNoise::Printed, part }, ours.epochs, epsilon)
}

/// The paper's settings: individual clipping with the C and |S_b| that Figure 1 chose, σ calibrated.
fn their_experiment(
    cell: &Cell,
    clip: f64,
    epsilon: f64,
    epochs: u64,
    effort: &GridSize,
) -> Result<Experiment, Error> {
    let clipping = cell.clipping.unwrap_or(Clipping::Individual);
    let made = paper(cell.data, SamplingKind::Subsample, clipping, cell.batch, clip, effort.seed);
    calibrated(Experiment { part: effort.part, ..made }, epochs, epsilon)
}

/// Runs both.
pub fn run(laboratory: &mut Laboratory<'_>, cells: &[Cell], effort: &GridSize) -> Result<Section, Error> {
    let targets: &[f64] = if effort.quick { &TARGETS[1..2] } else { &TARGETS };
    laboratory.progress.plan("At equal privacy", &work(targets, effort));
    let mut lines = Vec::new();
    let mut tried = Vec::new();
    for &data in &effort.data {
        let theirs = furthest(cells, data, SamplingKind::Subsample, Some(Clipping::Individual));
        if let Some((cell, clip)) = theirs.and_then(|cell| Some((cell, cell.clip()?))) {
            run_theirs(laboratory, cell, clip, targets, effort, &mut lines)?;
        }
        // First everything that learns from the same samples: their features are computed once.
        try_ours(laboratory, data, targets, effort, &mut tried)?;
        run_ours(laboratory, data, targets, effort, &tried, &mut lines)?;
    }
    // The two that are compared, one below the other.
    let place = |line: &Line| effort.data.iter().position(|data| *data == line.data);
    lines.sort_by(|a, b| place(a).cmp(&place(b)).then(a.epsilon.total_cmp(&b.epsilon)));
    show::section(&lines, &tried)
}

fn name(data: Known, what: &str, epsilon: f64) -> String {
    format!("beyond-{}-{what}-epsilon-{}", data.name(), number(epsilon))
}

/// The paper's settings at every ε.
fn run_theirs(
    laboratory: &mut Laboratory<'_>,
    cell: &Cell,
    clip: f64,
    targets: &[f64],
    effort: &GridSize,
    lines: &mut Vec<Line>,
) -> Result<(), Error> {
    let data = cell.data;
    for &epsilon in targets {
        let epochs = their_epochs(data, effort);
        let made = their_experiment(cell, clip, epsilon, epochs, effort)?;
        let outcome = laboratory.run(&name(data, "paper", epsilon), &made, epochs)?;
        let what = format!("the paper's: IC, |S_b| = {}, η = 0.025 × 0.9, plain", cell.batch);
        lines.push(Line { data, epsilon, what, outcome, epochs });
    }
    Ok(())
}

/// Our candidates at every ε, on samples that are held out.
fn try_ours(
    laboratory: &mut Laboratory<'_>,
    data: Known,
    targets: &[f64],
    effort: &GridSize,
    tried: &mut Vec<Tried>,
) -> Result<(), Error> {
    for &epsilon in targets {
        for ours in candidates(data, epsilon, effort.quick) {
            let part = held_out(data, effort);
            let made = our_experiment(data, epsilon, ours, SamplingKind::Subsample, part, effort.seed)?;
            let name = format!("{}-step-{}", name(data, "try", epsilon), number(ours.step));
            let outcome = laboratory.run(&name, &made, ours.epochs)?;
            let accuracy = outcome.and_then(|outcome| outcome.at(ours.epochs));
            tried.push(Tried { data, epsilon, ours, accuracy });
        }
    }
    Ok(())
}

/// The samplers of our best setting: the name of the run, and what it is called.
const SAMPLERS: [(SamplingKind, &str, &str); 2] = [
    (SamplingKind::Subsample, "ours", "ours"),
    (SamplingKind::Allocate, "allocated", "ours, by random allocation"),
];

/// The best of our candidates at every ε, with both samplers.
fn run_ours(
    laboratory: &mut Laboratory<'_>,
    data: Known,
    targets: &[f64],
    effort: &GridSize,
    tried: &[Tried],
    lines: &mut Vec<Line>,
) -> Result<(), Error> {
    for &epsilon in targets {
        let here = tried.iter().filter(|tried| (tried.data, tried.epsilon) == (data, epsilon));
        let best = best(here);
        let shown = best.unwrap_or(candidates(data, epsilon, effort.quick)[0]);
        for (sampling, run, said) in SAMPLERS {
            let mut outcome = None;
            if let Some(best) = best {
                let made = our_experiment(data, epsilon, best, sampling, effort.part, effort.seed)?;
                outcome = laboratory.run(&name(data, run, epsilon), &made, best.epochs)?;
            }
            let what = format!("{said}: IC, m = {}, η = {}, momentum", shown.groups, number(shown.step));
            lines.push(Line { data, epsilon, what, outcome, epochs: shown.epochs });
        }
    }
    Ok(())
}

/// E of the paper's settings; less on CIFAR-10, whose epochs take the longest.
fn their_epochs(data: Known, effort: &GridSize) -> u64 {
    if data == Known::Cifar10 { effort.table_epochs.min(20) } else { effort.table_epochs }
}

/// The candidate with the highest accuracy, once all have one.
fn best<'t>(tried: impl Iterator<Item = &'t Tried>) -> Option<Ours> {
    let all: Option<Vec<(f64, Ours)>> = tried.map(|tried| Some((tried.accuracy?, tried.ours))).collect();
    all?.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).map(|best| best.1)
}

/// Everything that may have to be computed.
fn work(targets: &[f64], effort: &GridSize) -> Vec<Work> {
    let mut work = Vec::new();
    for &data in &effort.data {
        let samples = effort.part.samples(data);
        for &epsilon in targets {
            let ours = candidates(data, epsilon, effort.quick);
            let epochs =
                ours.iter().map(|ours| ours.epochs).sum::<u64>() + SAMPLERS.len() as u64 * ours[0].epochs;
            work.push(Work { data, samples: epochs * samples });
            work.push(Work { data, samples: their_epochs(data, effort) * samples });
        }
    }
    work
}
