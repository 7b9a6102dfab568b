//! Numbers a second on one thread: exact noise, fast noise, and OpenDP's discrete Gaussian, in turns.

use std::time::{Duration, Instant};

use dashu::rational::RBig;
use dpsgd_train::Randomness;
use dpsgd_train::noise::{exact, fast};
use opendp::traits::samplers::sample_discrete_gaussian;

/// The deviation in steps of LeNet-5 with σ = 2.
const STEPS: f64 = 2_097_152.0;
const SLICE: Duration = Duration::from_millis(400);

fn rate(mut draw: impl FnMut() -> usize) -> f64 {
    let (began, mut drawn) = (Instant::now(), 0);
    while began.elapsed() < SLICE {
        drawn += draw();
    }
    drawn as f64 / began.elapsed().as_secs_f64()
}

fn main() {
    let randomness = Randomness::from_system().expect("random bytes");
    let (mut whole, mut single) = (vec![0.0_f64; 1 << 16], vec![0.0_f32; 1 << 16]);
    let scale = RBig::from(STEPS as u64);
    let mut round = 0;
    let mut rates = [const { Vec::new() }; 3];
    for _ in 0..9 {
        rates[0].push(rate(|| {
            round += 1;
            exact::draws(&randomness, round, STEPS, &mut whole);
            whole.len()
        }));
        rates[1].push(rate(|| {
            round += 1;
            fast::draws(&randomness, round, &mut single);
            single.len()
        }));
        rates[2].push(rate(|| {
            for _ in 0..1000 {
                std::hint::black_box(sample_discrete_gaussian(scale.clone()).expect("a number"));
            }
            1000
        }));
    }
    for (name, rates) in ["exact", "fast", "opendp discrete gaussian"].iter().zip(&mut rates) {
        rates.sort_by(f64::total_cmp);
        let median = rates[rates.len() / 2];
        println!("{{\"sampler\": \"{name}\", \"million_per_s\": {:.3}}}", median / 1e6);
    }
}
