//! Gradients layer by layer against finite differences of a slow network in double precision, which shares
//! nothing with the engine but the description.

mod common;

use common::{Memory, Numbers};
use dpsgd_engine::kernel::Level;
use dpsgd_engine::spec::{LayerSpec, Loss, NetworkSpec, Size};
use dpsgd_engine::{Network, Worker};

/// A batch of images, channel first, as PyTorch has them.
#[derive(Clone)]
struct Image {
    shape: [usize; 3],
    values: Vec<f64>,
}

impl Image {
    fn at(&self, c: usize, y: isize, x: isize) -> f64 {
        let [height, width, _] = self.shape;
        if y < 0 || x < 0 || y >= height as isize || x >= width as isize {
            return 0.0;
        }
        self.values[(c * height + y as usize) * width + x as usize]
    }

    fn new(shape: [usize; 3], mut value: impl FnMut(usize, usize, usize) -> f64) -> Self {
        let [height, width, channels] = shape;
        let mut values = Vec::new();
        for c in 0..channels {
            for y in 0..height {
                for x in 0..width {
                    values.push(value(c, y, x));
                }
            }
        }
        Image { shape, values }
    }
}

fn windows(image: &Image, kernel: Size, stride: Option<usize>, fold: impl Fn(&[f64]) -> f64) -> Image {
    let ([height, width], [h, w, channels]) = (kernel.pair(), image.shape);
    let [down, right] = stride.map_or([height, width], |stride| [stride, stride]);
    Image::new([(h - height) / down + 1, (w - width) / right + 1, channels], |c, y, x| {
        let mut values = Vec::new();
        for i in 0..height {
            for j in 0..width {
                values.push(image.at(c, (y * down + i) as isize, (x * right + j) as isize));
            }
        }
        fold(&values)
    })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Normalises each of the given sets of places (sample, value) over all samples.
fn normalise(batch: &mut [Image], sets: &[Vec<(usize, usize)>]) {
    for set in sets {
        let values: Vec<f64> = set.iter().map(|&(i, k)| batch[i].values[k]).collect();
        let centre = mean(&values);
        let variance = mean(&values.iter().map(|value| (value - centre).powi(2)).collect::<Vec<_>>());
        for &(i, k) in set {
            batch[i].values[k] = (batch[i].values[k] - centre) / (variance + f64::from(1e-5f32)).sqrt();
        }
    }
}

/// The mean loss of a batch; `w` in PyTorch's order, parameter after parameter.
fn loss(spec: &NetworkSpec, w: &[f64], samples: &Memory, batch: &[u32]) -> f64 {
    let [height, width, channels] = spec.input;
    let mut images: Vec<Image> = batch
        .iter()
        .map(|&i| {
            let input = &samples.inputs[i as usize];
            Image::new(spec.input, |c, y, x| f64::from(input[(y * width + x) * channels + c]))
        })
        .collect();
    let _ = height;
    let mut rest = w;
    let mut take = |n: usize| {
        let (head, tail) = rest.split_at(n);
        rest = tail;
        head
    };
    for layer in &spec.layers {
        let shape = images[0].shape;
        let [height, width, channels] = shape;
        let pixels = height * width;
        let everything = 0..channels * pixels;
        match *layer {
            LayerSpec::Conv2d { channels: out, kernel, padding, stride, bias } => {
                let [kh, kw] = kernel.pair();
                let weights = take(out * channels * kh * kw);
                let bias = if bias { take(out) } else { &[] };
                let size = |n: usize, k: usize| (n + 2 * padding - k) / stride + 1;
                for image in &mut images {
                    *image = Image::new([size(height, kh), size(width, kw), out], |o, y, x| {
                        let mut sum = bias.get(o).copied().unwrap_or(0.0);
                        for c in 0..channels {
                            for i in 0..kh {
                                for j in 0..kw {
                                    let at = [y * stride + i, x * stride + j]
                                        .map(|at| at as isize - padding as isize);
                                    sum += weights[((o * channels + c) * kh + i) * kw + j]
                                        * image.at(c, at[0], at[1]);
                                }
                            }
                        }
                        sum
                    });
                }
            }
            LayerSpec::Linear { features, bias } => {
                let inputs = channels * pixels;
                let weights = take(features * inputs);
                let bias = if bias { take(features) } else { &[] };
                for image in &mut images {
                    *image = Image::new([1, 1, features], |o, _, _| {
                        let row = &weights[o * inputs..][..inputs];
                        let dot: f64 = row.iter().zip(&image.values).map(|(w, x)| w * x).sum();
                        dot + bias.get(o).copied().unwrap_or(0.0)
                    });
                }
            }
            LayerSpec::AveragePool { kernel, stride } => {
                images.iter_mut().for_each(|image| *image = windows(image, kernel, stride, mean));
            }
            LayerSpec::MaxPool { kernel, stride } => {
                let largest = |values: &[f64]| values.iter().copied().fold(f64::MIN, f64::max);
                images.iter_mut().for_each(|image| *image = windows(image, kernel, stride, largest));
            }
            LayerSpec::GlobalAveragePool => {
                let all = Size::Both([height, width]);
                images.iter_mut().for_each(|image| *image = windows(image, all, None, mean));
            }
            LayerSpec::Relu | LayerSpec::Tanh | LayerSpec::Sigmoid => {
                for value in images.iter_mut().flat_map(|image| &mut image.values) {
                    *value = match layer {
                        LayerSpec::Relu => value.max(0.0),
                        LayerSpec::Tanh => value.tanh(),
                        _ => 1.0 / (1.0 + (-*value).exp()),
                    };
                }
            }
            LayerSpec::Flatten => {
                images.iter_mut().for_each(|image| image.shape = [1, 1, image.values.len()]);
            }
            LayerSpec::BatchNorm
            | LayerSpec::LayerNorm
            | LayerSpec::GroupNorm { .. }
            | LayerSpec::InstanceNorm => {
                let cells = match *layer {
                    LayerSpec::LayerNorm => 1,
                    LayerSpec::GroupNorm { groups } => groups,
                    _ => channels,
                };
                let in_cell =
                    |cell: usize| everything.clone().filter(move |k| k / pixels / (channels / cells) == cell);
                let sets: Vec<Vec<(usize, usize)>> = if *layer == LayerSpec::BatchNorm {
                    (0..cells)
                        .map(|cell| {
                            (0..images.len()).flat_map(|i| in_cell(cell).map(move |k| (i, k))).collect()
                        })
                        .collect()
                } else {
                    (0..images.len())
                        .flat_map(|i| (0..cells).map(move |cell| (i, cell)))
                        .map(|(i, cell)| in_cell(cell).map(|k| (i, k)).collect())
                        .collect()
                };
                normalise(&mut images, &sets);
                if *layer != LayerSpec::InstanceNorm {
                    let n = if *layer == LayerSpec::LayerNorm { channels * pixels } else { channels };
                    let (weights, bias) = (take(n), take(n));
                    for image in &mut images {
                        for (k, value) in image.values.iter_mut().enumerate() {
                            let k = if n == channels { k / pixels } else { k };
                            *value = *value * weights[k] + bias[k];
                        }
                    }
                }
            }
        }
    }
    let losses = images.iter().zip(batch).map(|(image, &i)| {
        let y = &image.values;
        let class = samples.classes[i as usize] as usize;
        match spec.loss {
            Loss::SoftmaxCrossEntropy => y.iter().map(|y| y.exp()).sum::<f64>().ln() - y[class],
            Loss::Logistic => (1.0 + y[0].exp()).ln() - class as f64 * y[0],
            Loss::Squared => {
                let values = &samples.values.as_ref().unwrap()[i as usize];
                mean(&y.iter().zip(values).map(|(y, v)| (y - f64::from(*v)).powi(2)).collect::<Vec<_>>())
            }
        }
    });
    mean(&losses.collect::<Vec<_>>())
}

/// Every coordinate of the engine's gradient of a group, on every instruction set, alone and in a sum of groups.
fn check(spec: NetworkSpec, size: usize) {
    let network = Network::new(&spec).unwrap();
    let mut numbers = Numbers(7);
    let classes = if spec.loss == Loss::Logistic { 2 } else { network.outputs() as u32 };
    let mut samples = numbers.samples(3 * size, spec.input.iter().product(), classes);
    if spec.loss == Loss::Squared {
        samples.values = Some((0..3 * size).map(|_| numbers.vector(network.outputs())).collect());
    }
    let mut w = network.initial(|| numbers.unit());
    // Off the constant start of normalisation weights.
    w.iter_mut().for_each(|w| *w += 0.1 * (numbers.unit() - 0.5));
    // PyTorch's order for the oracle.
    let places: Vec<usize> =
        network.parameters().iter().flat_map(|p| (0..p.numbers()).map(|i| p.place(i))).collect();
    let theirs: Vec<f64> = places.iter().map(|&place| f64::from(w[place])).collect();
    let groups: Vec<Vec<u32>> =
        (0..3).map(|h| (0..size as u32).map(|i| h * size as u32 + i).collect()).collect();
    let step = 1e-6;
    let exact: Vec<Vec<f64>> = groups
        .iter()
        .map(|group| {
            let mut gradient = vec![0.0; w.len()];
            for (i, &place) in places.iter().enumerate() {
                let moved = |by: f64| {
                    let mut w = theirs.clone();
                    w[i] += by;
                    loss(&spec, &w, &samples, group)
                };
                gradient[place] = (moved(step) - moved(-step)) / (2.0 * step);
            }
            gradient
        })
        .collect();
    let norm = |g: &[f64]| g.iter().map(|g| g * g).sum::<f64>().sqrt();
    for level in Level::available() {
        let mut worker = Worker::new(&network, &samples, size, level);
        worker.weights_mut().copy_from_slice(&w);
        for (group, exact) in groups.iter().zip(&exact) {
            let mut gradient = vec![f32::NAN; w.len()];
            let found = f64::from(worker.gradient(group, &mut gradient));
            assert!((found - loss(&spec, &theirs, &samples, group)).abs() < 1e-5, "{level:?} loss");
            for (i, (g, e)) in gradient.iter().zip(exact).enumerate() {
                assert!((f64::from(*g) - e).abs() < 1e-5 * (1.0 + norm(exact)), "{level:?} {i}: {g} {e}");
            }
        }
        // Three groups at once, the second left out.
        let everyone: Vec<u32> = groups.concat();
        let mut sum = vec![0.0; w.len()];
        let factors = [0.5, 0.0, 2.0];
        let mut norms = Vec::new();
        let mut scale = |norm: f32| {
            norms.push(f64::from(norm));
            factors[norms.len() - 1]
        };
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

use LayerSpec::{BatchNorm, Flatten, GlobalAveragePool, InstanceNorm, LayerNorm, Relu, Sigmoid, Tanh};

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
        let layers = [&[conv(4, [3, 3], 0, 1), layer, Tanh, conv(3, [3, 3], 1, 1)][..], &end].concat();
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

#[test]
fn a_broken_sample_adds_nothing() {
    let spec = net(
        [6, 6, 1],
        Loss::SoftmaxCrossEntropy,
        &[conv(3, [3, 3], 0, 1), Relu, Flatten, linear(5), Relu, linear(3)],
    );
    let network = Network::new(&spec).unwrap();
    let mut numbers = Numbers(3);
    let mut samples = numbers.samples(5, 36, 3);
    samples.inputs[1][7] = f32::INFINITY;
    samples.inputs[3][0] = f32::NAN;
    let w = network.initial(|| numbers.unit());
    for level in Level::available() {
        let mut worker = Worker::new(&network, &samples, 1, level);
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
