//! Sums of clipped gradients, sample by sample and in groups of eight.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use dpsgd_engine::spec::{LayerSpec, NetworkSpec};
use dpsgd_engine::{GradientWorker, Label, Level, Network, Samples, zoo};

const SAMPLES: u32 = 64;

/// Images that take no memory.
struct Pattern;

impl Samples for Pattern {
    fn count(&self) -> usize {
        SAMPLES as usize
    }

    fn copy_input(&self, index: u32, out: &mut [f32]) {
        for (i, out) in out.iter_mut().enumerate() {
            *out = ((i + 17 * index as usize) * 37 % 101) as f32 / 50.5 - 1.0;
        }
    }

    fn label(&self, index: u32) -> Label<'_> {
        Label::Class(index % 10)
    }
}

fn clipped(criterion: &mut Criterion, name: &str, spec: &NetworkSpec) {
    let network = Arc::new(Network::new(spec).expect("a network of the zoo"));
    let mut i = 0u32;
    let w = network.initial(|| {
        i += 1;
        (i.wrapping_mul(0x9e37_79b9) >> 8) as f32 / 16_777_216.0
    });
    let batch: Vec<u32> = (0..SAMPLES).collect();
    let mut sum = vec![0.0; network.dimension()];
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(u64::from(SAMPLES)));
    for size in [1, 8] {
        let mut worker = GradientWorker::new(network.clone(), Arc::new(Pattern), size, Level::best());
        worker.weights_mut().copy_from_slice(&w);
        group.bench_function(BenchmarkId::new("groups of", size), |bencher| {
            bencher.iter(|| {
                let mut clip = |norm: f32| (1.0 / norm).min(1.0);
                worker.add_scaled(black_box(&batch), size, &mut clip, &mut sum)
            });
        });
    }
    group.finish();
}

fn lenet5(criterion: &mut Criterion) {
    clipped(criterion, "lenet5", &zoo::lenet5([28, 28, 1], 10, LayerSpec::Tanh));
}

fn paper_cnn(criterion: &mut Criterion) {
    clipped(criterion, "paper-cnn", &zoo::paper_cnn([32, 32, 3], 10));
}

criterion_group!(benches, lenet5, paper_cnn);
criterion_main!(benches);
