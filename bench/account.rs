//! CPU seconds of a certified ε(δ), from the description of the run to the interval, as JSON lines.
//!
//! `account [settings] [known] [growth]` runs the parts named, or all of them.

mod cpu;

use std::error::Error;

use dpsgd_privacy::adversary::{self, Adversary};
use dpsgd_privacy::mechanism::{Length, Mechanism, NoiseScale, PhaseConfig, RunConfig, Sampling};
use serde_json::{Value, json};

const DELTA: f64 = 1e-5;

/// σ of the paper's experiments, used wherever only the cost is of interest.
const SIGMA: f64 = 2.0;

/// Golden settings, Poisson with add/remove: name, rate, noise multiplier, rounds.
const POISSON: [(&str, f64, f64, u64); 5] = [
    ("A", 256.0 / 60_000.0, 1.0, 23_437),
    ("C", 1e-3, 1.0, 100_000),
    ("E", 0.01, 1.0, 1000),
    ("G", 0.05, 2.0, 500),
    ("K", 0.02, 0.7, 300),
];

/// Golden settings, subsamples of a fixed size with substitution: name, N, m, σ, rounds.
const SUBSAMPLE: [(&str, u64, u64, f64, u64); 5] = [
    ("A", 60_000, 256, 1.0, 23_437),
    ("C", 1000, 1, 1.0, 100_000),
    ("E", 100, 1, 1.0, 1000),
    ("G", 20, 1, 2.0, 500),
    ("K", 50, 1, 0.7, 300),
];

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo bench` adds flags of its own.
    let parts: Vec<String> = std::env::args().skip(1).filter(|part| !part.starts_with('-')).collect();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|given| given == part);
    // First, because the peak of the memory is that of the whole process.
    if wanted("known") {
        known()?;
    }
    if wanted("settings") {
        settings()?;
    }
    if wanted("growth") {
        growth(Sampler::Subsample)?;
        growth(Sampler::Shuffle)?;
    }
    Ok(())
}

/// The golden settings against A₀.
fn settings() -> Result<(), Box<dyn Error>> {
    let print = |sampling: &str, name: &str, run: PhaseConfig| -> Result<(), Box<dyn Error>> {
        let mut line = measured(&RunConfig::single(run).check()?, Adversary::A0)?;
        line["part"] = json!("settings");
        line["sampling"] = json!(sampling);
        line["setting"] = json!(name);
        println!("{line}");
        Ok(())
    };
    for (name, rate, multiplier, rounds) in POISSON {
        let run = PhaseConfig {
            sampling: Sampling::Poisson { rate },
            length: Length::Rounds(rounds),
            noise: NoiseScale::Multiplier(multiplier),
            filtered: false,
        };
        print("poisson", name, run)?;
    }
    for (name, samples, groups, sigma, rounds) in SUBSAMPLE {
        let run = PhaseConfig {
            sampling: Sampling::Subsample { samples, groups, group_size: 1 },
            length: Length::Rounds(rounds),
            noise: NoiseScale::Sigma(sigma),
            filtered: false,
        };
        print("subsample", name, run)?;
    }
    Ok(())
}

/// A₁ at the two sizes that have a limit.
fn known() -> Result<(), Box<dyn Error>> {
    for sampler in [Sampler::Subsample, Sampler::Shuffle] {
        for (samples, groups, rounds, differing) in
            [(60_000, 64, 93_700, 8), (1_000_000_000, 4096, 10_000_000, 64)]
        {
            let length = Length::Rounds(rounds);
            let mut line = measured(&sampler.mechanism(samples, groups, length, differing)?, Adversary::A1)?;
            line["part"] = json!("known");
            line["sampling"] = json!(sampler.name());
            line["samples"] = json!(samples);
            line["groups"] = json!(groups);
            line["rounds"] = json!(rounds);
            line["differing"] = json!(differing);
            line["peak_mb"] = json!(cpu::peak_megabytes()?);
            println!("{line}");
        }
    }
    Ok(())
}

/// A₁ while one quantity grows and what it should not depend on stays.
fn growth(sampler: Sampler) -> Result<(), Box<dyn Error>> {
    let epochs = Length::Epochs;
    let differing = [1, 2, 4, 8, 16, 32, 64].map(|g| (g, 60_000, 64, epochs(100), g));
    sweep(sampler, "g", &differing)?;
    let length = [1, 4, 16, 64, 256, 1024].map(|e| (e, 60_000, 64, epochs(e), 8));
    sweep(sampler, "E", &length)?;
    let scales = [1, 10, 100, 1000, 10_000];
    // N and T together, so that E and g stay; T is about 100·N/64.
    let rounds = scales.map(|scale| (93_700 * scale, 60_000 * scale, 64, Length::Rounds(93_700 * scale), 8));
    sweep(sampler, "T", &rounds)?;
    // N and m together, so that E, g and T stay.
    let samples = scales.map(|scale| (60_000 * scale, 60_000 * scale, 64 * scale, epochs(100), 8));
    sweep(sampler, "N", &samples)
}

/// Times A₁ at (value, N, m, length, g) for every value and fits time ∝ value^exponent.
fn sweep(
    sampler: Sampler,
    against: &str,
    steps: &[(u64, u64, u64, Length, u64)],
) -> Result<(), Box<dyn Error>> {
    let mut times = Vec::with_capacity(steps.len());
    let mut spans = Vec::with_capacity(steps.len());
    for &(value, samples, groups, length, differing) in steps {
        let mechanism = sampler.mechanism(samples, groups, length, differing)?;
        let mut line = measured(&mechanism, Adversary::A1)?;
        // None where the law is too wide to list and its moments are used instead.
        let span = adversary::law(&mechanism).ok().flatten().map(|law| law.span());
        line["part"] = json!("growth");
        line["sampling"] = json!(sampler.name());
        line["against"] = json!(against);
        line["value"] = json!(value);
        line["span"] = json!(span);
        let time = line["cpu_s"].as_f64().ok_or("no time")?;
        times.push(((value as f64).ln(), time.ln()));
        spans.extend(span.map(|span| ((span as f64).ln(), time.ln())));
        println!("{line}");
    }
    let line = json!({
        "part": "exponent",
        "sampling": sampler.name(),
        "against": against,
        "exponent": slope(&times),
        // What is asked of large values is not hidden behind the fixed cost of small ones.
        "exponent_of_last_half": slope(&times[times.len() / 2..]),
        "exponent_in_span": matches!(against, "g" | "E").then(|| slope(&spans)),
    });
    println!("{line}");
    Ok(())
}

/// The slope of the least-squares line.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let x = points.iter().map(|p| p.0).sum::<f64>() / count;
    let y = points.iter().map(|p| p.1).sum::<f64>() / count;
    let above: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    above / points.iter().map(|p| (p.0 - x).powi(2)).sum::<f64>()
}

/// ε(δ) of a run with its CPU time; the trade-off function is built anew in every call.
fn measured(mechanism: &Mechanism, adversary: Adversary) -> Result<Value, Box<dyn Error>> {
    let (time, epsilon, repetitions) =
        cpu::median(|| Ok(adversary::curve(mechanism, adversary)?.epsilon(DELTA)?))?;
    Ok(json!({
        "adversary": adversary.name(),
        "delta": DELTA,
        "epsilon": { "lower": epsilon.lower, "upper": epsilon.upper },
        "cpu_s": time,
        "repetitions": repetitions,
    }))
}

#[derive(Clone, Copy)]
enum Sampler {
    Subsample,
    Shuffle,
}

impl Sampler {
    fn name(self) -> &'static str {
        match self {
            Sampler::Subsample => "subsample",
            Sampler::Shuffle => "shuffle",
        }
    }

    fn mechanism(
        self,
        samples: u64,
        groups: u64,
        length: Length,
        differing: u64,
    ) -> Result<Mechanism, Box<dyn Error>> {
        let sampling = match self {
            Sampler::Subsample => Sampling::Subsample { samples, groups, group_size: 1 },
            Sampler::Shuffle => Sampling::Shuffle { samples, groups, group_size: 1 },
        };
        let phase = PhaseConfig { sampling, length, noise: NoiseScale::Sigma(SIGMA), filtered: false };
        Ok(RunConfig { differing, ..RunConfig::single(phase) }.check()?)
    }
}
