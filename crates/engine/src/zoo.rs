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
        activation.clone(),
        HALVE,
        conv(16, 5, 0),
        activation.clone(),
        HALVE,
        LayerSpec::Flatten,
        linear(120),
        activation.clone(),
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

/// A small network for features of an image, such as the scattering transform: every place is mixed on its
/// own by a 1 × 1 convolution, which makes the many channels few, and then with its neighbours. Bounded
/// activations keep the gradients of samples alike (Papernot and others 2021).
pub fn small_cnn(input: [usize; 3], classes: usize) -> NetworkSpec {
    let mut layers = vec![conv(64, 1, 0), LayerSpec::Tanh];
    // A plane of one place has nothing to halve.
    if input[0] > 1 && input[1] > 1 {
        layers.push(HALVE);
    }
    layers.extend([conv(64, 3, 1), LayerSpec::Tanh, LayerSpec::Flatten, linear(classes)]);
    NetworkSpec { input, loss: Loss::SoftmaxCrossEntropy, layers }
}

/// A multilayer perceptron with the given hidden sizes.
pub fn mlp(input: [usize; 3], hidden: &[usize], classes: usize, activation: LayerSpec) -> NetworkSpec {
    let mut layers = vec![LayerSpec::Flatten];
    for &features in hidden {
        layers.extend([linear(features), activation.clone()]);
    }
    layers.push(linear(classes));
    NetworkSpec { input, loss: Loss::SoftmaxCrossEntropy, layers }
}

/// Multinomial logistic regression.
pub fn logistic(input: [usize; 3], classes: usize) -> NetworkSpec {
    mlp(input, &[], classes, LayerSpec::Relu)
}
