//! The networks of the paper, and the two simplest ones.

use crate::spec::{LayerSpec, Loss, NetworkSpec, Size};

fn conv(channels: usize, kernel: usize, padding: usize) -> LayerSpec {
    LayerSpec::Conv2d { channels, kernel: Size::Square(kernel), padding, stride: 1, bias: true }
}

fn linear(features: usize) -> LayerSpec {
    LayerSpec::Linear { features, bias: true }
}

const HALVE: LayerSpec = LayerSpec::AveragePool { kernel: Size::Square(2), stride: None };

/// LeNet-5 with average pooling. Its two convolutions need an image of at least 12 × 12.
pub fn lenet5(input: [usize; 3], classes: usize, activation: LayerSpec) -> NetworkSpec {
    let layers = vec![
        conv(6, 5, 2),
        activation,
        HALVE,
        conv(16, 5, 0),
        activation,
        HALVE,
        LayerSpec::Flatten,
        linear(120),
        activation,
        linear(84),
        activation,
        linear(classes),
    ];
    NetworkSpec { input, loss: Loss::SoftmaxCrossEntropy, layers }
}

/// The convolutional network of the paper's table for CIFAR-10.
pub fn paper_cnn(input: [usize; 3], classes: usize) -> NetworkSpec {
    let layers = vec![
        conv(32, 3, 1),
        LayerSpec::Relu,
        HALVE,
        conv(64, 3, 1),
        LayerSpec::Relu,
        HALVE,
        conv(64, 3, 1),
        LayerSpec::Relu,
        HALVE,
        conv(128, 3, 1),
        LayerSpec::Relu,
        LayerSpec::GlobalAveragePool,
        LayerSpec::Flatten,
        linear(classes),
    ];
    NetworkSpec { input, loss: Loss::SoftmaxCrossEntropy, layers }
}

/// A multilayer perceptron with the given hidden sizes.
pub fn mlp(input: [usize; 3], hidden: &[usize], classes: usize, activation: LayerSpec) -> NetworkSpec {
    let mut layers = vec![LayerSpec::Flatten];
    for &features in hidden {
        layers.extend([linear(features), activation]);
    }
    layers.push(linear(classes));
    NetworkSpec { input, loss: Loss::SoftmaxCrossEntropy, layers }
}

/// Multinomial logistic regression.
pub fn logistic(input: [usize; 3], classes: usize) -> NetworkSpec {
    mlp(input, &[], classes, LayerSpec::Relu)
}
