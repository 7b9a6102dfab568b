//! CPU seconds and width of a certified ε(δ) of random allocation over a seeded grid, as JSON lines.
//!
//! `allocation [count]`: first the settings of `allocation_peers.py`, the median of many calls each; then
//! that many settings of the grid, 240 if none is given. B from 2 to 10⁶, E from 1 to 1000, z from 0.4 to 20
//! and δ from 1e-15 to 1e-3, each uniform in its logarithm. The last line sums up.

#[allow(dead_code, reason = "the other bench uses the rest")]
mod cpu;
#[allow(dead_code, reason = "the other bench uses the rest")]
mod uniform;

use std::error::Error;

use dpsgd_privacy::adversary::{self, Adversary};
use dpsgd_privacy::mechanism::{
    Length, Mechanism, MechanismError, NoiseScale, PhaseConfig, RunConfig, Sampling,
};
use serde_json::json;
use uniform::Uniform;

/// The relative width that is asked for.
const WIDTH: f64 = 1e-8;

/// B, E and z at which the other accountant is asked as well, δ = 1e-5.
const PEERS: [(u64, u64, f64); 5] =
    [(16, 1, 1.0), (234, 1, 1.0), (234, 10, 1.0), (234, 100, 1.0), (1000, 1, 2.0)];

fn mechanism(rounds: u64, epochs: u64, z: f64) -> Result<Mechanism, MechanismError> {
    RunConfig::single(PhaseConfig {
        sampling: Sampling::Allocate { rounds },
        length: Length::Epochs(epochs),
        noise: NoiseScale::Multiplier(z),
        filtered: false,
    })
    .check()
}

/// What `allocation_peers.py` asks the other accountant.
fn settings() -> Result<(), Box<dyn Error>> {
    for (rounds, epochs, z) in PEERS {
        let run = mechanism(rounds, epochs, z)?;
        let ask = || Ok(adversary::curve(&run, Adversary::A0)?.epsilon(1e-5)?);
        let (time, epsilon, repetitions) = cpu::median(ask)?;
        println!(
            "{}",
            json!({
                "part": "allocation-settings", "B": rounds, "E": epochs, "z": z, "delta": 1e-5,
                "epsilon": { "lower": epsilon.lower, "upper": epsilon.upper },
                "cpu_s": time, "repetitions": repetitions,
            })
        );
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo bench` adds flags of its own.
    let given = std::env::args().skip(1).find(|part| !part.starts_with('-'));
    let count = given.map_or(Ok(240), |count| count.parse())?;
    settings()?;
    let mut uniform = Uniform(12);
    let (mut times, mut wide, mut slow) = (Vec::new(), 0, 0);
    for _ in 0..count {
        let rounds = uniform.between(2.0, 1e6).round() as u64;
        let epochs = uniform.between(1.0, 1000.0).round() as u64;
        let z = (100.0 * uniform.between(0.4, 20.0)).round() / 100.0;
        let delta = uniform.between(1e-15, 1e-3);
        let mechanism = mechanism(rounds, epochs, z)?;
        let begin = cpu::seconds()?;
        let epsilon = adversary::curve(&mechanism, Adversary::A0)?.epsilon(delta)?;
        let time = cpu::seconds()? - begin;
        let width = if epsilon.upper == 0.0 { 0.0 } else { epsilon.width() / epsilon.upper };
        times.push(time);
        wide += usize::from(width > WIDTH);
        slow += usize::from(time > 0.1);
        println!(
            "{}",
            json!({
                "part": "allocation", "B": rounds, "E": epochs, "z": z, "delta": delta,
                "epsilon": { "lower": epsilon.lower, "upper": epsilon.upper },
                "width": width, "cpu_s": time,
            })
        );
    }
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    println!(
        "{}",
        json!({
            "part": "allocation-summary", "settings": count, "median_s": at(0.5), "p90_s": at(0.9),
            "p99_s": at(0.99), "worst_s": at(1.0), "above_0.1_s": slow, "wider_than_1e-8": wide,
        })
    );
    Ok(())
}
