//! What the three usual questions cost: ε(δ), a trade-off curve, the σ for a target.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use dpsgd_privacy::calibrate::{self, Target};
use dpsgd_privacy::mechanism::{Length, NoiseScale, PhaseConfig, RunConfig, Sampling};
use dpsgd_privacy::{Adversary, adversary};

/// The paper's setting under each sampler, with the adversary a theorem covers.
fn runs() -> [RunConfig; 3] {
    let (samples, groups, group_size) = (60_000, 64, 1);
    [
        Sampling::Subsample { samples, groups, group_size },
        Sampling::Shuffle { samples, groups, group_size },
        Sampling::Poisson { rate: 64.0 / 60_000.0 },
    ]
    .map(|sampling| {
        RunConfig::single(PhaseConfig {
            sampling,
            length: Length::Epochs(100),
            noise: NoiseScale::Sigma(2.0),
            filtered: false,
        })
    })
}

/// The trade-off function is rebuilt in every iteration, as for a first question.
fn questions(criterion: &mut Criterion) {
    for config in runs() {
        let name = config.phases[0].sampling.name();
        let mechanism = config.check().expect("a valid setting");
        let adversary = Adversary::usual(&mechanism);
        let curve = || adversary::curve(black_box(&mechanism), adversary).expect("a covered setting");
        criterion.bench_function(&format!("epsilon/{name}"), |bench| {
            bench.iter(|| curve().epsilon(1e-5).expect("certified"));
        });
        criterion.bench_function(&format!("trade-off curve/{name}"), |bench| {
            bench.iter(|| {
                let curve = curve();
                (1..32).map(|i| curve.beta(f64::from(i) / 32.0).expect("certified").lower).sum::<f64>()
            });
        });
    }
}

fn calibration(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sigma for a target");
    group.sample_size(10);
    for config in runs() {
        let adversary = Adversary::usual_for(&config);
        let target = Target::Epsilon { epsilon: 1.0, delta: 1e-5 };
        group.bench_function(config.phases[0].sampling.name(), |bench| {
            bench.iter(|| calibrate::sigma(black_box(&config), adversary, target).expect("reachable").value);
        });
    }
    group.finish();
}

criterion_group!(benches, questions, calibration);
criterion_main!(benches);
