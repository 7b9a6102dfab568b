//! CPU seconds and width of certified answers over a seeded random grid of questions, as JSON lines.
//!
//! `sweep [count] [seed] [epsilon|mu|curve|calibrate] [number …]`: that many questions, 500 if none is given, over the whole range of
//! the accountant: rounds 1 to 10⁹ (a third of them at most 64), rate 10⁻⁹ to 1, σ from 0.05 to 10⁴, g to 64, δ
//! from 1e-30 to 1e-2, every sampler and relation, A₀ and A₁, one or two phases, with and without a further
//! release. By default each question is ε(δ); `mu`, `curve` (200 points) and `calibrate` ask for those instead.
//! With numbers, only those of the questions are asked. The last line sums up.

#[allow(dead_code, reason = "the other bench uses the rest")]
mod cpu;
#[allow(dead_code, reason = "the other bench uses the rest")]
mod uniform;

use std::error::Error;

use dpsgd_privacy::adversary::{self, Adversary};
use dpsgd_privacy::calibrate::{self, Target};
use dpsgd_privacy::mechanism::{Length, Mechanism, Neighbours, NoiseScale, PhaseConfig, RunConfig, Sampling};
use dpsgd_privacy::{Interval, PrivacyError};
use serde_json::{Value, json};
use uniform::Uniform;

/// A question and the words it is listed under.
struct Question {
    config: RunConfig,
    adversary: Adversary,
    delta: f64,
}

/// What is asked about each run.
#[derive(Clone, Copy, PartialEq)]
enum Ask {
    Epsilon,
    Mu,
    Curve,
    Calibrate,
}

fn phase(random: &mut Uniform, sampler: &str, rounds: u64, rate: f64) -> PhaseConfig {
    let sigma = random.between(0.05, 1e4).min(random.between(0.05, 1e4)).min(random.between(0.05, 1e4));
    let groups = random.choose(&[1, 4, 64, 600]);
    let group_size = random.choose(&[1, 1, 1, 4]);
    let samples = ((groups * group_size) as f64 / rate).clamp((groups * group_size) as f64, 1e12) as u64;
    let per_epoch = ((1.0 / rate) as u64).clamp(1, 100_000_000);
    let sampling = match sampler {
        "poisson" => Sampling::Poisson { rate },
        "subsample" => Sampling::Subsample { samples, groups, group_size },
        "shuffle" => Sampling::Shuffle { samples, groups, group_size },
        _ => Sampling::Allocate { rounds: per_epoch },
    };
    let length = match sampler {
        "allocate" => Length::Epochs((rounds / per_epoch).clamp(1, 1000)),
        _ => Length::Rounds(rounds),
    };
    PhaseConfig { sampling, length, noise: NoiseScale::Sigma(sigma), filtered: random.next() < 0.05 }
}

fn question(random: &mut Uniform) -> Question {
    let sampler = random.choose(&["poisson", "poisson", "subsample", "subsample", "shuffle", "allocate"]);
    let most = random.choose(&[64.0, 1e5, 1e9]);
    let rounds = random.between(1.0, most) as u64;
    let rate = random.between(1e-9, 1.0).max(random.between(1e-9, 1.0));
    let mut config = RunConfig::single(phase(random, sampler, rounds, rate));
    if random.next() < 0.15 {
        config.phases.push(phase(random, sampler, rounds, rate));
    }
    if sampler == "poisson" || sampler == "allocate" {
        config.neighbours =
            random.choose(&[Neighbours::AddRemove, Neighbours::AddRemove, Neighbours::Substitute]);
    }
    config.differing = random.choose(&[1, 1, 1, 1, 2, 8, 64]);
    if random.next() < 0.1 {
        config.releases = vec![random.between(1e-3, 1.0)];
    }
    let told = sampler == "shuffle" || random.next() < 0.2;
    let adversary = if told { Adversary::A1 } else { Adversary::A0 };
    Question { config, adversary, delta: random.between(1e-30, 1e-2) }
}

fn name(question: &Question) -> String {
    let phases: Vec<String> = question
        .config
        .phases
        .iter()
        .map(|p| {
            let filtered = if p.filtered { " filtered" } else { "" };
            format!("{:?} {:?} {:?}{filtered}", p.sampling, p.length, p.noise)
        })
        .collect();
    format!(
        "{} {:?} g={} releases={:?} delta={:.3e} {}",
        question.adversary,
        question.config.neighbours,
        question.config.differing,
        question.config.releases,
        question.delta,
        phases.join(" then ")
    )
}

fn answer(question: &Question, run: &Mechanism, ask: Ask) -> Result<Interval, PrivacyError> {
    let curve = adversary::curve(run, question.adversary)?;
    match ask {
        Ask::Epsilon => curve.epsilon(question.delta),
        Ask::Mu => Ok(curve.mu_on_default_range()?.0),
        Ask::Curve => {
            let mut widest = Interval::exact(0.0);
            for i in 0..200 {
                // Denser near both ends, as a plot needs it.
                let alpha = 0.5 - 0.5 * (std::f64::consts::PI * (f64::from(i) + 0.5) / 200.0).cos();
                let beta = curve.beta(alpha)?;
                if beta.width() > widest.width() {
                    widest = beta;
                }
            }
            Ok(widest)
        }
        Ask::Calibrate => {
            // For the ε of this very run: the σ that comes out must be this one.
            let target = curve.epsilon(question.delta)?.upper;
            if !(target > 0.0 && target.is_finite()) {
                return Ok(Interval::exact(0.0));
            }
            let goal = Target::Epsilon { epsilon: target, delta: question.delta };
            let found = calibrate::sigma(&question.config, question.adversary, goal)?;
            Ok(Interval::exact(found.mechanism.phases()[0].sigma()))
        }
    }
}

fn share(sorted: &[f64], part: f64) -> f64 {
    sorted.get(((sorted.len() as f64 - 1.0) * part) as usize).copied().unwrap_or(0.0)
}

fn summary(rows: &[(f64, f64, String)], refused: usize) -> Value {
    let sorted = |of: &dyn Fn(&(f64, f64, String)) -> f64| {
        let mut all: Vec<f64> = rows.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all
    };
    let (times, widths) = (sorted(&|r| r.0), sorted(&|r| r.1));
    let worst = |of: &dyn Fn(&(f64, f64, String)) -> f64| {
        let mut all: Vec<&(f64, f64, String)> = rows.iter().collect();
        all.sort_by(|a, b| of(b).total_cmp(&of(a)));
        all.iter().take(8).map(|r| json!({"cpu": r.0, "width": r.1, "question": r.2})).collect::<Vec<_>>()
    };
    json!({
        "kind": "sweep-summary",
        "questions": rows.len(),
        "refused": refused,
        "cpu": {"median": share(&times, 0.5), "p90": share(&times, 0.9), "p99": share(&times, 0.99), "most": share(&times, 1.0)},
        "above_10_ms": times.iter().filter(|t| **t > 0.01).count(),
        "above_50_ms": times.iter().filter(|t| **t > 0.05).count(),
        "width": {"median": share(&widths, 0.5), "p90": share(&widths, 0.9), "p99": share(&widths, 0.99)},
        "wider_than_1e-6": widths.iter().filter(|w| **w > 1e-6).count(),
        "wider_than_1e-2": widths.iter().filter(|w| **w > 1e-2).count(),
        "slowest": worst(&|r| r.0),
        "widest": worst(&|r| r.1),
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    // Cargo passes --bench.
    let mut arguments = std::env::args().skip(1).filter(|a| a != "--bench");
    let count: usize = arguments.next().map_or(Ok(500), |a| a.parse())?;
    let seed: u64 = arguments.next().map_or(Ok(12), |a| a.parse())?;
    let ask = match arguments.next().as_deref() {
        None | Some("epsilon") => Ask::Epsilon,
        Some("mu") => Ask::Mu,
        Some("curve") => Ask::Curve,
        Some("calibrate") => Ask::Calibrate,
        Some(other) => return Err(format!("{other}: must be epsilon, mu, curve or calibrate").into()),
    };
    let only: Vec<usize> = arguments.map(|a| a.parse()).collect::<Result<_, _>>()?;
    let mut random = Uniform(seed);
    let (mut rows, mut refused, mut asked) = (Vec::new(), 0, 0);
    while asked < count {
        let question = question(&mut random);
        // What no run may be (more differing samples than there are, say) is not a question.
        let Ok(run) = question.config.check() else { continue };
        asked += 1;
        if !only.is_empty() && !only.contains(&asked) {
            continue;
        }
        let name = name(&question);
        let start = cpu::seconds()?;
        let value = answer(&question, &run, ask);
        let cpu = cpu::seconds()? - start;
        let row = match value {
            Ok(value) => {
                let width = match value.upper {
                    0.0 => 0.0,
                    upper if upper.is_finite() => value.width() / upper,
                    _ => f64::INFINITY,
                };
                rows.push((cpu, width, name.clone()));
                json!({"kind": "sweep", "number": asked, "cpu": cpu, "lower": value.lower, "upper": format!("{:e}", value.upper), "width": format!("{width:.1e}"), "question": name})
            }
            Err(error) => {
                refused += 1;
                rows.push((cpu, f64::INFINITY, format!("{name}: {error}")));
                json!({"kind": "sweep", "number": asked, "cpu": cpu, "refused": error.to_string(), "question": name})
            }
        };
        println!("{row}");
    }
    println!("{}", summary(&rows, refused));
    Ok(())
}
