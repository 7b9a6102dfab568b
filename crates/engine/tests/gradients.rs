//! Gradients layer by layer against finite differences of a slow network in double precision, which shares
//! only the description with the engine.

mod common;
mod oracle;

use std::sync::Arc;

use common::Numbers;
use dpsgd_engine::spec::{LayerSpec, Loss, NetworkSpec, Size};
use dpsgd_engine::{GradientWorker, Level, Network};
use oracle::loss;

/// Every coordinate of the engine's gradient of a group, on every instruction set, alone and in a sum of
/// groups.
fn check(spec: NetworkSpec, size: usize) {
    let network = Arc::new(Network::new(&spec).unwrap());
    let mut numbers = Numbers(7);
    let classes = if spec.loss == Loss::Logistic { 2 } else { network.outputs() as u32 };
    let mut samples = numbers.samples(3 * size, spec.input.iter().product(), classes);
    if spec.loss.is_regression() {
        samples.values = Some((0..3 * size).map(|_| numbers.vector(network.outputs())).collect());
    }
    let samples = Arc::new(samples);
    let mut w = network.initial(|| numbers.unit());
    // Moves the normalisation weights off their constant start.
    w.iter_mut().for_each(|w| *w += 0.1 * (numbers.unit() - 0.5));
    // In PyTorch's order, for the oracle.
    let places: Vec<usize> =
        network.parameters().iter().flat_map(|p| (0..p.numbers()).map(|i| p.place(i))).collect();
    let theirs: Vec<f64> = places.iter().map(|&place| f64::from(w[place])).collect();
    let groups: Vec<Vec<u32>> =
        (0..3).map(|h| (0..size as u32).map(|i| h * size as u32 + i).collect()).collect();
    let seeds = [11, 12, 13];
    let seed = |h: usize| network.has_dropout().then_some(seeds[h]);
    let step = 1e-6;
    let exact: Vec<Vec<f64>> = groups
        .iter()
        .enumerate()
        .map(|(h, group)| {
            let mut gradient = vec![0.0; w.len()];
            for (i, &place) in places.iter().enumerate() {
                let moved = |by: f64| {
                    let mut w = theirs.clone();
                    w[i] += by;
                    loss(&spec, &w, &samples, group, seed(h))
                };
                gradient[place] = (moved(step) - moved(-step)) / (2.0 * step);
            }
            gradient
        })
        .collect();
    let norm = |g: &[f64]| g.iter().map(|g| g * g).sum::<f64>().sqrt();
    for level in Level::available() {
        let mut worker = GradientWorker::new(network.clone(), samples.clone(), size, level);
        worker.weights_mut().copy_from_slice(&w);
        for (h, (group, exact)) in groups.iter().zip(&exact).enumerate() {
            let mut gradient = vec![f32::NAN; w.len()];
            worker.seed(&seeds[h..=h]);
            let found = f64::from(worker.gradient(group, &mut gradient));
            let expected = loss(&spec, &theirs, &samples, group, seed(h));
            assert!((found - expected).abs() < 1e-5, "{level:?} loss");
            for (i, (g, e)) in gradient.iter().zip(exact).enumerate() {
                assert!((f64::from(*g) - e).abs() < 1e-5 * (1.0 + norm(exact)), "{level:?} {i}: {g} {e}");
            }
            // The same bits part by part, each coordinate once, for somebody who moves the parameters meanwhile.
            let mut parts = vec![f32::NAN; w.len()];
            worker.seed(&seeds[h..=h]);
            let loss_in_parts = worker.gradient_in_parts(group, &mut |first, weights, part| {
                assert_eq!(weights.len(), part.len());
                assert_eq!(weights, &w[first..][..part.len()]);
                assert!(parts[first..][..part.len()].iter().all(|g| g.is_nan()), "{level:?} {first} again");
                parts[first..][..part.len()].copy_from_slice(part);
                weights.fill(1e3);
            });
            assert_eq!(f64::from(loss_in_parts), found);
            assert_eq!(parts, gradient, "{level:?}");
            worker.weights_mut().copy_from_slice(&w);
        }
        // Three groups at once, skipping the second.
        let everyone: Vec<u32> = groups.concat();
        let mut sum = vec![0.0; w.len()];
        let factors = [0.5, 0.0, 2.0];
        let mut norms = Vec::new();
        let mut scale = |norm: f32| {
            norms.push(f64::from(norm));
            factors[norms.len() - 1]
        };
        worker.seed(&seeds);
        worker.add_scaled(&everyone, size, &mut scale, &mut sum);
        for (found, exact) in norms.iter().zip(&exact) {
            assert!(
                (found - norm(exact)).abs() < 1e-5 * (1.0 + norm(exact)),
                "{level:?} {found} {}",
                norm(exact)
            );
        }
        for (i, found) in sum.iter().enumerate() {
            let expected: f64 = (0..3).map(|h| f64::from(factors[h]) * exact[h][i]).sum();
            assert!((f64::from(*found) - expected).abs() < 3e-5 * (1.0 + norm(&exact[0])), "{level:?} {i}");
        }
    }
}

fn net(input: [usize; 3], loss: Loss, layers: &[LayerSpec]) -> NetworkSpec {
    NetworkSpec { input, loss, layers: layers.to_vec() }
}

fn conv(channels: usize, kernel: [usize; 2], padding: usize, stride: usize) -> LayerSpec {
    LayerSpec::Conv2d { channels, kernel: Size::Both(kernel), padding, stride, bias: true }
}

fn linear(features: usize) -> LayerSpec {
    LayerSpec::Linear { features, bias: true }
}

use LayerSpec::{
    BatchNorm, Flatten, Gelu, GlobalAveragePool, InstanceNorm, LayerNorm, Relu, Sigmoid, Silu, Tanh,
};

#[test]
fn linear_layers() {
    check(net([1, 1, 5], Loss::SoftmaxCrossEntropy, &[linear(3)]), 1);
    check(
        net([3, 2, 2], Loss::SoftmaxCrossEntropy, &[Flatten, linear(19), Tanh, linear(17), Relu, linear(4)]),
        2,
    );
    let without = LayerSpec::Linear { features: 9, bias: false };
    check(net([1, 1, 7], Loss::Squared, &[without, Sigmoid, linear(2)]), 3);
    check(net([1, 1, 7], Loss::Logistic, &[linear(8), Tanh, Relu, linear(1)]), 1);
    check(net([1, 1, 4], Loss::Squared, &[Tanh, linear(3)]), 18);
}

#[test]
fn convolutions() {
    let end = [Flatten, linear(3)];
    let with = |layers: &[LayerSpec]| net([7, 6, 2], Loss::SoftmaxCrossEntropy, &[layers, &end].concat());
    check(with(&[conv(3, [3, 3], 1, 1), Tanh]), 1);
    check(with(&[conv(5, [2, 3], 0, 2), Sigmoid, conv(4, [2, 1], 0, 1)]), 1);
    check(with(&[conv(9, [3, 2], 1, 1), conv(17, [3, 3], 2, 2), Tanh]), 2);
    check(with(&[conv(33, [1, 1], 0, 1), Tanh, conv(2, [3, 3], 1, 3)]), 1);
    let without =
        LayerSpec::Conv2d { channels: 4, kernel: Size::Square(3), padding: 0, stride: 1, bias: false };
    check(with(&[without, Relu, conv(3, [3, 3], 1, 1)]), 3);
}

#[test]
fn pooling() {
    let pool = |kernel, stride| LayerSpec::AveragePool { kernel, stride };
    let most = |kernel, stride| LayerSpec::MaxPool { kernel, stride };
    let end = [Flatten, linear(3)];
    let with = |layers: &[LayerSpec]| net([8, 9, 2], Loss::SoftmaxCrossEntropy, &[layers, &end].concat());
    check(with(&[conv(3, [3, 3], 1, 1), pool(Size::Square(2), None), conv(4, [3, 3], 1, 1), Tanh]), 1);
    check(with(&[conv(3, [3, 3], 0, 1), pool(Size::Both([3, 2]), Some(1)), Tanh]), 2);
    check(with(&[conv(3, [3, 3], 0, 1), most(Size::Square(2), None), conv(2, [3, 3], 1, 1)]), 1);
    check(with(&[conv(3, [3, 3], 0, 1), Tanh, most(Size::Square(3), Some(2))]), 2);
    check(net([8, 9, 2], Loss::SoftmaxCrossEntropy, &[conv(3, [3, 3], 0, 1), Tanh, GlobalAveragePool]), 1);
    check(with(&[conv(12, [3, 3], 0, 1), Tanh, GlobalAveragePool]), 2);
}

#[test]
fn normalisation() {
    let groups = LayerSpec::GroupNorm { groups: 2 };
    let end = [Flatten, linear(3)];
    for layer in [LayerNorm, groups, InstanceNorm] {
        let layers =
            [&[conv(4, [3, 3], 0, 1), layer.clone(), Tanh, conv(3, [3, 3], 1, 1)][..], &end].concat();
        check(net([6, 5, 2], Loss::SoftmaxCrossEntropy, &layers), 1);
        check(net([6, 5, 2], Loss::SoftmaxCrossEntropy, &layers), 3);
        let first = [&[layer, conv(4, [3, 3], 0, 1)][..], &end].concat();
        check(net([6, 5, 2], Loss::SoftmaxCrossEntropy, &first), 1);
    }
    check(net([1, 1, 6], Loss::SoftmaxCrossEntropy, &[linear(8), LayerNorm, Tanh, linear(3)]), 2);
    let layers = [&[conv(4, [3, 3], 0, 1), BatchNorm, Tanh, conv(3, [3, 3], 1, 1)][..], &end].concat();
    check(net([6, 5, 2], Loss::SoftmaxCrossEntropy, &layers), 4);
    check(net([1, 1, 6], Loss::SoftmaxCrossEntropy, &[linear(8), BatchNorm, Tanh, linear(3)]), 20);
}

fn residual(projection: bool, layers: &[LayerSpec]) -> LayerSpec {
    LayerSpec::Residual { projection, layers: layers.to_vec() }
}

#[test]
fn activations() {
    let kinds = [Gelu, Silu, LayerSpec::LeakyRelu { slope: 0.1 }, LayerSpec::Elu { alpha: 0.7 }];
    for kind in kinds {
        let row = [kind.clone(), linear(8), kind.clone(), Tanh, kind.clone(), linear(3)];
        check(net([1, 1, 5], Loss::SoftmaxCrossEntropy, &row), 2);
        let image = [conv(3, [3, 3], 0, 1), kind.clone(), conv(3, [3, 3], 1, 1), kind, Flatten, linear(3)];
        check(net([6, 5, 2], Loss::SoftmaxCrossEntropy, &image), 1);
    }
}

#[test]
fn losses() {
    for loss in [Loss::Absolute, Loss::Huber { delta: 0.4 }, Loss::Hinge] {
        check(net([1, 1, 5], loss, &[linear(6), Tanh, linear(3)]), 1);
        check(net([1, 1, 5], loss, &[linear(4)]), 3);
    }
}

#[test]
fn residual_blocks() {
    let end = [Flatten, linear(3)];
    let with = |layers: &[LayerSpec]| net([6, 7, 3], Loss::SoftmaxCrossEntropy, &[layers, &end].concat());
    let same = conv(3, [3, 3], 1, 1);
    let halve = conv(4, [3, 3], 1, 2);
    // First, in the middle, last; with an activation at either end; nested; with both kinds of shortcut.
    check(with(&[residual(false, &[same.clone(), Tanh])]), 1);
    check(with(&[same.clone(), residual(false, &[Relu, same.clone()]), Relu]), 2);
    check(
        with(&[same.clone(), Tanh, residual(true, &[halve.clone(), Tanh, conv(4, [3, 3], 1, 1)]), Relu]),
        1,
    );
    check(with(&[residual(true, &[halve.clone(), Silu]), residual(false, &[LayerNorm, Gelu])]), 2);
    let nested = residual(true, &[residual(false, &[same.clone(), Tanh]), conv(5, [1, 1], 0, 1)]);
    check(with(&[conv(3, [3, 3], 1, 1), nested, GlobalAveragePool]), 1);
    let row = |layers: &[LayerSpec]| net([1, 1, 5], Loss::SoftmaxCrossEntropy, layers);
    check(row(&[residual(false, &[linear(7), Tanh, linear(5)]), linear(3)]), 1);
    check(row(&[linear(6), Tanh, residual(true, &[linear(7), Silu, linear(4)]), Tanh, linear(3)]), 2);
    check(row(&[residual(true, &[residual(false, &[Tanh, linear(5)]), linear(3)])]), 1);
    // Samples that affect each other, in the body.
    check(with(&[residual(false, &[same.clone(), BatchNorm, Tanh])]), 3);
    // Larger than a chunk, whose samples share the linear layers.
    check(row(&[residual(true, &[linear(4), Tanh]), linear(2)]), 40);
}

#[test]
fn dropout() {
    let drop = |rate| LayerSpec::Dropout { rate };
    let row = |layers: &[LayerSpec]| net([1, 1, 9], Loss::SoftmaxCrossEntropy, layers);
    check(row(&[linear(8), Tanh, drop(0.5), linear(3)]), 1);
    check(row(&[drop(0.2), linear(8), drop(0.3), Relu, drop(0.1), linear(3)]), 3);
    check(row(&[drop(0.0), residual(false, &[drop(0.5), linear(9)]), linear(2)]), 1);
    let image =
        [conv(3, [3, 3], 1, 1), drop(0.4), conv(4, [3, 3], 1, 1), Gelu, drop(0.3), Flatten, linear(3)];
    check(net([5, 4, 2], Loss::SoftmaxCrossEntropy, &image), 1);
    check(net([5, 4, 2], Loss::SoftmaxCrossEntropy, &image), 2);
}

/// Before or after a flatten layer, the same values are dropped; a second gradient drops others; an
/// evaluation drops none.
#[test]
fn dropout_is_a_function_of_the_seed_and_off_in_an_evaluation() {
    let drop = LayerSpec::Dropout { rate: 0.5 };
    let first = conv(3, [3, 3], 1, 1);
    let before =
        net([4, 4, 2], Loss::SoftmaxCrossEntropy, &[first.clone(), drop.clone(), Flatten, linear(3)]);
    let after = net([4, 4, 2], Loss::SoftmaxCrossEntropy, &[first.clone(), Flatten, drop, linear(3)]);
    let without = net([4, 4, 2], Loss::SoftmaxCrossEntropy, &[first, Flatten, linear(3)]);
    let run = |spec: &NetworkSpec| {
        let network = Arc::new(Network::new(spec).unwrap());
        let mut numbers = Numbers(5);
        let samples = Arc::new(numbers.samples(4, 32, 3));
        let w = network.initial(|| numbers.unit());
        let mut worker = GradientWorker::new(network, samples, 1, Level::best());
        worker.weights_mut().copy_from_slice(&w);
        let mut sums = vec![vec![0.0; w.len()]; 3];
        worker.seed(&[5, 6, 7, 8]);
        for sum in &mut sums[..2] {
            worker.add_scaled(&[0, 1, 2, 3], 1, &mut |_| 1.0, sum);
        }
        worker.seed(&[5, 6, 7, 8]);
        worker.add_scaled(&[0, 1, 2, 3], 1, &mut |_| 1.0, &mut sums[2]);
        (sums, worker.scores(&[0, 1, 2, 3]), worker.evaluate(&[0, 1, 2, 3]))
    };
    let (before, after, without) = (run(&before), run(&after), run(&without));
    assert_eq!(before, after);
    assert_ne!(before.0[0], before.0[1]);
    assert_eq!(before.0[0], before.0[2]);
    assert_eq!((before.1, before.2), (without.1, without.2));
    assert_eq!(without.0[0], without.0[1]);
}

#[test]
fn embeddings() {
    let embed = LayerSpec::Embedding { columns: vec![3, 1, 4, 1], features: 2 };
    let row = |layers: &[LayerSpec]| net([1, 1, 9], Loss::SoftmaxCrossEntropy, layers);
    check(row(&[embed.clone(), linear(3)]), 1);
    check(row(&[embed.clone(), Tanh, residual(false, &[linear(6), Tanh]), linear(3)]), 2);
    check(row(&[embed.clone(), linear(6), BatchNorm, linear(3)]), 3);
}

#[test]
fn attentions() {
    let attend = |heads| LayerSpec::Attention { heads };
    let end = [Flatten, linear(3)];
    let with = |layers: &[LayerSpec]| net([2, 3, 4], Loss::SoftmaxCrossEntropy, &[layers, &end].concat());
    check(with(&[attend(1)]), 1);
    check(with(&[conv(6, [2, 2], 1, 1), Tanh, attend(3), Tanh]), 2);
    check(with(&[residual(false, &[attend(2)]), residual(false, &[attend(4), Gelu, attend(1)])]), 1);
}

#[test]
fn a_broken_sample_adds_nothing() {
    let spec = net(
        [6, 6, 1],
        Loss::SoftmaxCrossEntropy,
        &[conv(3, [3, 3], 0, 1), Relu, Flatten, linear(5), Relu, linear(3)],
    );
    let network = Arc::new(Network::new(&spec).unwrap());
    let mut numbers = Numbers(3);
    let mut samples = numbers.samples(5, 36, 3);
    samples.inputs[1][7] = f32::INFINITY;
    samples.inputs[3][0] = f32::NAN;
    let samples = Arc::new(samples);
    let w = network.initial(|| numbers.unit());
    for level in Level::available() {
        let mut worker = GradientWorker::new(network.clone(), samples.clone(), 1, level);
        worker.weights_mut().copy_from_slice(&w);
        let mut scale = |norm: f32| if norm.is_finite() { 1.0 } else { 0.0 };
        let (mut all, mut good) = (vec![0.0; w.len()], vec![0.0; w.len()]);
        worker.add_scaled(&[0, 1, 2, 3, 4], 1, &mut scale, &mut all);
        worker.add_scaled(&[0, 2, 4], 1, &mut scale, &mut good);
        assert!(all.iter().all(|x| x.is_finite()));
        let distance = all.iter().zip(&good).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(distance < 1e-6, "{level:?}: {distance}");
    }
}

/// Steps of an inner algorithm, one for each sample: those with parts of gradients are those with whole gradients,
/// and what a group leaves follows from its parameters and samples alone, whatever the worker did before.
#[test]
fn a_walk_in_parts_is_the_walk_of_a_fresh_worker() {
    let drop = |rate| LayerSpec::Dropout { rate };
    let end = [Flatten, linear(70), Tanh, linear(3)];
    let with = |layers: &[LayerSpec]| net([6, 7, 3], Loss::SoftmaxCrossEntropy, &[layers, &end].concat());
    let same = conv(3, [3, 3], 1, 1);
    for spec in [
        with(&[conv(33, [3, 3], 1, 2), Relu, conv(5, [2, 3], 0, 1)]),
        with(&[same.clone(), BatchNorm, Tanh, residual(false, &[same.clone(), BatchNorm, Relu])]),
        with(&[residual(true, &[conv(4, [3, 3], 1, 2), Silu]), residual(false, &[LayerNorm, Gelu])]),
        net(
            [6, 7, 3],
            Loss::SoftmaxCrossEntropy,
            &[same, drop(0.5), Flatten, linear(40), drop(0.3), linear(3)],
        ),
    ] {
        let network = Arc::new(Network::new(&spec).unwrap());
        let mut numbers = Numbers(5);
        let samples = Arc::new(numbers.samples(8, spec.input.iter().product(), 3));
        let start = network.initial(|| numbers.unit());
        for level in Level::available() {
            let fresh = || GradientWorker::new(network.clone(), samples.clone(), 4, level);
            let walk = |worker: &mut GradientWorker, in_parts: bool, group: &[u32]| {
                worker.weights_mut().copy_from_slice(&start);
                worker.seed(&[17]);
                let mut gradient = vec![0.0; start.len()];
                for sample in group {
                    if in_parts {
                        worker.gradient_in_parts(&[*sample], &mut |_, w, g| {
                            w.iter_mut().zip(g).for_each(|(w, g)| *w -= 0.1 * g);
                        });
                    } else {
                        worker.gradient(&[*sample], &mut gradient);
                        worker.weights_mut().iter_mut().zip(&gradient).for_each(|(w, g)| *w -= 0.1 * g);
                    }
                }
                worker.weights_mut().iter().map(|w| w.to_bits()).collect::<Vec<_>>()
            };
            let group = [3, 0, 6, 5];
            let expected = walk(&mut fresh(), false, &group);
            assert!(expected.iter().all(|&bits| f32::from_bits(bits).is_finite()), "{spec:?}");
            assert!(walk(&mut fresh(), true, &group) == expected, "{level:?} {spec:?}");
            // After other groups, and after one that has left nothing finite anywhere.
            let mut used = fresh();
            for poison in [1.0, 1e30, f32::INFINITY, f32::NAN] {
                walk(&mut used, true, &[1, 2, 4, 7]);
                used.weights_mut().fill(poison);
                used.gradient_in_parts(&[2], &mut |_, w, _| w.fill(poison));
                used.gradient_in_parts(&[1, 2, 4, 7], &mut |_, w, _| w.fill(-poison));
                assert!(walk(&mut used, true, &group) == expected, "{level:?} {poison} {spec:?}");
            }
        }
    }
}
