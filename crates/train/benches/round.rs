//! A round, the clipped sum and the noise: what the trainer adds to the time of the gradients.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use dpsgd_privacy::mechanism::{Length, NoiseScale, PhaseConfig, RunConfig, Sampling};
use dpsgd_train::clip::{ClippedSum, Rows, UnitSum};
use dpsgd_train::noise::{BLOCK, RoundNoise};
use dpsgd_train::{Model, ModelError, NoiseKind, PlanConfig, Randomness, Trainer, Unrecorded, Worker};

/// The parameters of LeNet-5.
const DIMENSION: usize = 61_706;
const GROUPS: usize = 64;

/// A model whose gradients cost as little as they can: a copy.
struct Copied(Vec<f32>);

struct CopiedWorker(Arc<Copied>, Vec<f32>);

impl Model for Copied {
    type Worker = CopiedWorker;

    fn dimension(&self) -> usize {
        self.0.len()
    }

    fn samples(&self) -> usize {
        10_000
    }

    fn worker(self: &Arc<Self>, _group_size: usize) -> Result<CopiedWorker, ModelError> {
        Ok(CopiedWorker(self.clone(), vec![0.0; self.0.len()]))
    }
}

impl Worker for CopiedWorker {
    fn weights_mut(&mut self) -> &mut [f32] {
        &mut self.1
    }

    fn gradient(&mut self, _: &[u32], gradient: &mut [f32]) -> Result<f32, ModelError> {
        gradient.copy_from_slice(&self.0.0);
        Ok(0.0)
    }
}

fn gradient() -> Vec<f32> {
    (0..DIMENSION).map(|i| ((i * 7919) % 1000) as f32 / 500.0 - 1.0).collect()
}

fn round(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("round of 64 groups, 61706 parameters");
    for threads in [1, 2] {
        let run = RunConfig::single(PhaseConfig {
            sampling: Sampling::Subsample { samples: 10_000, groups: GROUPS as u64, group_size: 1 },
            length: Length::Rounds(1 << 40),
            noise: NoiseScale::Sigma(1.0),
            filtered: false,
        });
        let mut config = PlanConfig::new(run.check().unwrap(), 1.0, 0.1);
        config.threads = threads;
        let ledger = Unrecorded::new(config.check().unwrap());
        let model = Arc::new(Copied(gradient()));
        let weights = vec![0.0; DIMENSION];
        let mut trainer = Trainer::new(ledger, model, weights, Randomness::from_seed(1, 0)).unwrap();
        group.throughput(Throughput::Elements(GROUPS as u64));
        group.bench_function(format!("{threads} threads"), |bencher| {
            bencher.iter(|| black_box(trainer.round().unwrap().update[0]));
        });
    }
    group.finish();
}

fn sum(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("clipped sum of 64 groups, 61706 parameters");
    group.throughput(Throughput::Elements(GROUPS as u64));
    let result = gradient();
    let fresh = || (ClippedSum::new(DIMENSION, 1.0), UnitSum::new(DIMENSION, 1.0));
    group.bench_function("one by one", |bencher| {
        bencher.iter_batched_ref(
            fresh,
            |(total, unit)| {
                for number in 1..=GROUPS {
                    unit.add(&result);
                    if number % 32 == 0 {
                        total.absorb(unit);
                    }
                }
            },
            BatchSize::LargeInput,
        );
    });
    let matrix: Vec<f32> = (0..GROUPS).flat_map(|_| gradient()).collect();
    group.bench_function("rows", |bencher| {
        bencher.iter_batched_ref(
            fresh,
            |(total, unit)| {
                let stretches = [&matrix[..]];
                let rows = Rows::new(&stretches, GROUPS, DIMENSION).unwrap();
                total.add_rows(unit, &rows, &[32, 64], None);
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

fn noise(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("noise of 61706 coordinates");
    group.throughput(Throughput::Elements(DIMENSION as u64));
    let randomness = Randomness::from_seed(1, 0);
    let sum = ClippedSum::new(DIMENSION, 1.0);
    let mut out = vec![0.0; DIMENSION];
    for kind in [NoiseKind::Exact, NoiseKind::Fast] {
        let mut round = 0;
        group.bench_function(kind.name(), |bencher| {
            bencher.iter(|| {
                round += 1;
                let noise = RoundNoise::of(kind, &sum, 1.0, &randomness, round);
                for (block, out) in out.chunks_mut(BLOCK).enumerate() {
                    noise.add(block, &sum.values()[block * BLOCK..][..out.len()], out);
                }
                black_box(out[0])
            });
        });
    }
    group.finish();
}

criterion_group!(benches, round, sum, noise);
criterion_main!(benches);
