//! The hot loops, at every level of the machine.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use dpsgd_kernels::multiply::{Places, Product, Walk};
use dpsgd_kernels::{Level, SLACK, elementwise, gaussian, squares};

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i * 37 % 101) as f32 / 50.5 - 1.0).collect()
}

/// The third convolution of the paper's CNN: 64 pixels, 576 weights for each of 64 channels.
fn multiply(criterion: &mut Criterion) {
    let (rows, inner, columns) = (64, 576, 64);
    let (a, b) = (numbers(rows * inner), numbers(inner * columns + SLACK));
    let starts: Vec<u32> = (0..rows).map(|row| (row * inner) as u32).collect();
    let places: Vec<u32> = (0..rows).map(|row| (row * columns) as u32).collect();
    let mut c = vec![0.0; rows * columns];
    let mut group = criterion.benchmark_group("multiply");
    group.throughput(Throughput::Elements((2 * rows * inner * columns) as u64));
    for level in Level::available() {
        let product = Product {
            a: &a,
            rows: Places::new(&starts),
            b: &b,
            panel: level.panel(),
            walk: Walk::line(inner, 1, columns),
            columns,
        };
        group.bench_function(BenchmarkId::from_parameter(level.name()), |bencher| {
            bencher.iter(|| product.store(level, None, black_box(&mut c), Places::new(&places)));
        });
    }
    group.finish();
}

fn normal(criterion: &mut Criterion) {
    let half = 4096;
    let bits: Vec<u32> = (0..4 * half).map(|i: u32| i.wrapping_mul(0x9e37_79b9) ^ (i << 7)).collect();
    let half = half as usize;
    let (mut fast, mut exact) = (vec![0.0f32; 2 * half], vec![0.0f64; 2 * half]);
    let mut group = criterion.benchmark_group("gaussian");
    group.throughput(Throughput::Elements(2 * half as u64));
    for level in Level::available() {
        group.bench_function(BenchmarkId::new("standard", level.name()), |bencher| {
            bencher.iter(|| gaussian::standard_normal(level, black_box(&bits[..3 * half]), &mut fast));
        });
        group.bench_function(BenchmarkId::new("rounded", level.name()), |bencher| {
            bencher.iter(|| gaussian::rounded_normal(level, black_box(&bits), 2_097_152.0, &mut exact));
        });
    }
    group.finish();
}

/// The squared norm of a gradient of LeNet-5, in double and in single precision.
fn norms(criterion: &mut Criterion) {
    let x = numbers(61_706);
    let mut group = criterion.benchmark_group("squares");
    group.throughput(Throughput::Elements(x.len() as u64));
    group.bench_function("double", |bencher| bencher.iter(|| squares(black_box(&x))));
    for level in Level::available() {
        group.bench_function(BenchmarkId::new("single", level.name()), |bencher| {
            bencher.iter(|| elementwise::square(level, black_box(&x)));
        });
    }
    group.finish();
}

criterion_group!(benches, multiply, normal, norms);
criterion_main!(benches);
