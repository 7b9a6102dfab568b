//! The mean gradient over views is the mean of the gradients of the transformed images, and label smoothing
//! is the loss that it says.

mod common;

use std::sync::Arc;

use common::{Memory, Numbers};
use dpsgd_engine::spec::{LayerSpec, Loss, NetworkSpec, Size};
use dpsgd_engine::views::{Augment, View};
use dpsgd_engine::{GradientWorker, Label, Level, Network, Samples};

const SHAPE: [usize; 3] = [7, 6, 2];

fn network(loss: Loss, outputs: usize, norm: Option<LayerSpec>) -> Arc<Network> {
    let conv = LayerSpec::Conv2d { channels: 4, kernel: Size::Square(3), padding: 1, stride: 1, bias: true };
    let mut layers = vec![conv];
    layers.extend(norm);
    layers.extend([LayerSpec::Tanh, LayerSpec::Flatten, LayerSpec::Linear { features: outputs, bias: true }]);
    Arc::new(Network::new(&NetworkSpec { input: SHAPE, loss, layers }).unwrap())
}

fn views(numbers: &mut Numbers, count: usize) -> Vec<View> {
    let augment = Augment { flip: true, shift: 2, views: count };
    (0..count).map(|_| augment.draw(&mut |below| (numbers.unit() * below as f32) as u32)).collect()
}

/// Groups of one and of several samples, more views than fit in a chunk, with and without a normalisation.
#[test]
fn the_gradient_is_the_mean_over_the_views() {
    for norm in [None, Some(LayerSpec::GroupNorm { groups: 2 })] {
        let network = network(Loss::SoftmaxCrossEntropy, 3, norm);
        let d = network.dimension();
        for (size, count) in [(1, 1), (1, 8), (1, 77), (3, 4)] {
            let mut numbers = Numbers(11);
            let memory = numbers.samples(6, SHAPE.iter().product(), 3);
            let w = network.initial(|| numbers.unit());
            let of_each: Vec<Vec<View>> = (0..6).map(|_| views(&mut numbers, count)).collect();

            // The images one by one, transformed before anything sees them, summed in double precision.
            let mut expected = vec![vec![0.0f64; d]; 6 / size];
            let mut losses = 0.0;
            for sample in 0..6 {
                for view in &of_each[sample] {
                    let mut image = memory.inputs[sample].clone();
                    view.apply(SHAPE, &mut image);
                    let one =
                        Memory { inputs: vec![image], classes: vec![memory.classes[sample]], values: None };
                    let mut worker = GradientWorker::new(network.clone(), Arc::new(one), 1, Level::best());
                    worker.weights_mut().copy_from_slice(&w);
                    let mut gradient = vec![0.0; d];
                    let share = (count * size) as f64;
                    losses += f64::from(worker.gradient(&[0], &mut gradient)) / share;
                    let sum = &mut expected[sample / size];
                    sum.iter_mut().zip(&gradient).for_each(|(sum, g)| *sum += f64::from(*g) / share);
                }
            }

            let augment = Augment { flip: true, shift: 2, views: count };
            let memory = Arc::new(memory);
            let mut worker =
                GradientWorker::new(network.clone(), memory, size, Level::best()).augmented(augment);
            worker.weights_mut().copy_from_slice(&w);
            worker.views_mut().clear(count);
            for (sample, views) in of_each.iter().enumerate() {
                worker.views_mut().push(sample as u32, views.iter().copied());
            }
            for (g, expected) in expected.iter().enumerate() {
                let group: Vec<u32> = (g * size..(g + 1) * size).map(|i| i as u32).collect();
                let mut gradient = vec![0.0; d];
                worker.gradient(&group, &mut gradient);
                close(&gradient, expected, 2e-6);
            }
            // The clip sees the norm of the mean, not those of the views.
            let mut norms = Vec::new();
            let mut sum = vec![0.0; d];
            let mut scale = |norm: f32| {
                norms.push(norm);
                0.5
            };
            let all: Vec<u32> = (0..6).collect();
            let found = worker.add_scaled(&all, size, &mut scale, &mut sum);
            assert!((f64::from(found) - losses).abs() < 1e-5, "{found} and {losses}");
            for (norm, expected) in norms.iter().zip(&expected) {
                let true_norm = expected.iter().map(|g| g * g).sum::<f64>().sqrt();
                assert!((f64::from(*norm) - true_norm).abs() < 1e-5 * true_norm, "{norm} and {true_norm}");
            }
            assert_eq!(norms.len(), 6 / size);
            let half: Vec<f64> = (0..d).map(|i| expected.iter().map(|g| 0.5 * g[i]).sum()).collect();
            close(&sum, &half, 5e-6);
        }
    }
}

fn close(found: &[f32], expected: &[f64], tolerance: f64) {
    for (found, expected) in found.iter().zip(expected) {
        assert!((f64::from(*found) - expected).abs() < tolerance, "{found} and {expected}");
    }
}

/// The smoothed loss from the outputs by its definition, and its gradient by finite differences of that.
#[test]
fn smoothed_labels_are_those_of_the_definition() {
    for (loss, outputs, classes) in [(Loss::SoftmaxCrossEntropy, 4, 4), (Loss::Logistic, 1, 2)] {
        let network = network(loss, outputs, None);
        let mut numbers = Numbers(3);
        let memory = Arc::new(numbers.samples(5, SHAPE.iter().product(), classes));
        let w = network.initial(|| numbers.unit());
        for alpha in [0.0f32, 0.1, 0.7] {
            let all: Vec<u32> = (0..5).collect();
            let mut worker =
                GradientWorker::new(network.clone(), memory.clone(), 1, Level::best()).smoothed(alpha);
            let mut by_hand = |w: &[f32]| -> f64 {
                worker.weights_mut().copy_from_slice(w);
                let mut total = 0.0;
                for (i, row) in worker.scores(&all).chunks(outputs).enumerate() {
                    let Label::Class(class) = memory.label(i as u32) else { unreachable!() };
                    let mut scores: Vec<f64> = row.iter().map(|y| f64::from(*y)).collect();
                    if outputs == 1 {
                        scores.insert(0, 0.0);
                    }
                    let sum: f64 = scores.iter().map(|y| y.exp()).sum();
                    for (k, y) in scores.iter().enumerate() {
                        let share = f64::from(alpha) / f64::from(classes);
                        let target = if k as u32 == class { 1.0 - f64::from(alpha) + share } else { share };
                        total -= target * (y - sum.ln());
                    }
                }
                total / 5.0
            };
            let expected = by_hand(&w);
            let step = 1e-2f32;
            let places: Vec<usize> = (0..network.dimension()).step_by(37).collect();
            let slopes: Vec<f64> = places
                .iter()
                .map(|&i| {
                    let (mut up, mut down) = (w.clone(), w.clone());
                    up[i] += step;
                    down[i] -= step;
                    (by_hand(&up) - by_hand(&down)) / f64::from(up[i] - down[i])
                })
                .collect();
            worker.weights_mut().copy_from_slice(&w);
            let mut gradient = vec![0.0; network.dimension()];
            let found = worker.gradient(&all, &mut gradient);
            assert!((f64::from(found) - expected).abs() < 1e-5, "{loss:?} {alpha}: {found} and {expected}");
            for (&i, slope) in places.iter().zip(slopes) {
                let found = f64::from(gradient[i]);
                assert!((found - slope).abs() < 2e-4, "{loss:?} {alpha}, {i}: {found} and {slope}");
            }
            // Clipping sees the same gradients, and a measurement the plain loss.
            let mut sum = vec![0.0; network.dimension()];
            worker.add_scaled(&all, 1, &mut |_| 0.2, &mut sum);
            close(&sum, &gradient.iter().map(|g| f64::from(*g)).collect::<Vec<_>>(), 1e-5);
            let mut plain = GradientWorker::new(network.clone(), memory.clone(), 1, Level::best());
            plain.weights_mut().copy_from_slice(&w);
            assert_eq!(plain.evaluate(&all), worker.evaluate(&all));
        }
    }
}
