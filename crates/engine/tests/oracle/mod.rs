//! A slow network in double precision, which shares only the description with the engine.

use super::common::Memory;
use dpsgd_engine::spec::{LayerSpec, Loss, NetworkSpec, Size};

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

/// What the layers of the oracle share: the parameters that are left, in PyTorch's order, and the random bits
/// of the group.
struct Oracle<'w> {
    rest: &'w [f64],
    seed: Option<u64>,
    dropouts: u64,
}

impl<'w> Oracle<'w> {
    fn take(&mut self, n: usize) -> &'w [f64] {
        let (head, tail) = self.rest.split_at(n);
        self.rest = tail;
        head
    }

    /// Dropout as documented: splitmix64 of the seed, the number of gradients before (0), the position of the
    /// sample, the number of the dropout layer and half the place of the value; a word for each value.
    fn factor(&self, member: usize, place: usize, rate: f32) -> f64 {
        let Some(seed) = self.seed else { return 1.0 };
        let word = [0, member as u64, self.dropouts, place as u64 / 2].iter().fold(seed, |key, place| {
            let mut z = key.wrapping_add(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(place + 1));
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        let word = (word >> (32 * (place % 2))) as u32;
        let dropped = f64::from(word) / 4_294_967_296.0 < f64::from(rate);
        if dropped { 0.0 } else { 1.0 / (1.0 - f64::from(rate)) }
    }
}

/// `nn.MultiheadAttention` of the pixels with themselves.
fn attention(image: &Image, heads: usize, inward: [&[f64]; 2], outward: [&[f64]; 2]) -> Image {
    let [height, width, channels] = image.shape;
    let pixels = height * width;
    let map = |x: &[Vec<f64>], [weights, bias]: [&[f64]; 2]| -> Vec<Vec<f64>> {
        let row = |x: &Vec<f64>, o: usize| -> f64 {
            (0..channels).map(|c| weights[o * channels + c] * x[c]).sum::<f64>() + bias[o]
        };
        x.iter().map(|x| (0..bias.len()).map(|o| row(x, o)).collect()).collect()
    };
    let tokens: Vec<Vec<f64>> =
        (0..pixels).map(|p| (0..channels).map(|c| image.values[c * pixels + p]).collect()).collect();
    let all = map(&tokens, inward);
    let size = channels / heads;
    let mut joined = vec![vec![0.0; channels]; pixels];
    for head in 0..heads {
        let part = |which: usize, p: usize| &all[p][which * channels + head * size..][..size];
        for (p, joined) in joined.iter_mut().enumerate() {
            let score = |q: usize| part(0, p).iter().zip(part(1, q)).map(|(a, b)| a * b).sum::<f64>();
            let shares: Vec<f64> = (0..pixels).map(|q| (score(q) / (size as f64).sqrt()).exp()).collect();
            let sum: f64 = shares.iter().sum();
            for c in 0..size {
                joined[head * size + c] = (0..pixels).map(|q| shares[q] / sum * part(2, q)[c]).sum();
            }
        }
    }
    let out = map(&joined, outward);
    Image::new(image.shape, |c, y, x| out[y * width + x][c])
}

/// Runs the layers on a batch.
fn apply(layers: &[LayerSpec], images: &mut [Image], oracle: &mut Oracle) {
    for layer in layers {
        let [height, width, channels] = images[0].shape;
        let pixels = height * width;
        let everything = 0..channels * pixels;
        match *layer {
            LayerSpec::Conv2d { channels: out, kernel, padding, stride, bias } => {
                let [kh, kw] = kernel.pair();
                let weights = oracle.take(out * channels * kh * kw);
                let bias = if bias { oracle.take(out) } else { &[] };
                let size = |n: usize, k: usize| (n + 2 * padding - k) / stride + 1;
                for image in images.iter_mut() {
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
                let weights = oracle.take(features * inputs);
                let bias = if bias { oracle.take(features) } else { &[] };
                for image in images.iter_mut() {
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
            LayerSpec::Residual { projection, ref layers } => {
                let before = images.to_vec();
                apply(layers, images, oracle);
                let [out_height, out_width, out] = images[0].shape;
                let weights = if projection { oracle.take(out * channels) } else { &[] };
                let stride =
                    (1..).find(|s| (height - 1) / s < out_height && (width - 1) / s < out_width).unwrap();
                for (image, before) in images.iter_mut().zip(&before) {
                    let skip = Image::new([out_height, out_width, out], |o, y, x| match projection {
                        false => before.at(o, y as isize, x as isize),
                        true => (0..channels)
                            .map(|c| {
                                let [y, x] = [y, x].map(|at| (at * stride) as isize);
                                weights[o * channels + c] * before.at(c, y, x)
                            })
                            .sum(),
                    });
                    image.values.iter_mut().zip(&skip.values).for_each(|(value, skip)| *value += skip);
                }
            }
            LayerSpec::Dropout { rate } => {
                for (member, image) in images.iter_mut().enumerate() {
                    let before = image.clone();
                    *image = Image::new(image.shape, |c, y, x| {
                        let place = (y * width + x) * channels + c;
                        before.at(c, y as isize, x as isize) * oracle.factor(member, place, rate)
                    });
                }
                oracle.dropouts += 1;
            }
            LayerSpec::Embedding { ref columns, features } => {
                let tables: Vec<&[f64]> =
                    columns.iter().map(|&n| if n > 1 { oracle.take(n * features) } else { &[] }).collect();
                for image in images.iter_mut() {
                    let mut values = Vec::new();
                    let mut first = 0;
                    for (table, &n) in tables.iter().zip(columns) {
                        let x = &image.values[first..first + n];
                        first += n;
                        match n {
                            1 => values.push(x[0]),
                            _ => values.extend((0..features).map(|f| {
                                x.iter().enumerate().map(|(i, x)| x * table[i * features + f]).sum::<f64>()
                            })),
                        }
                    }
                    *image = Image { shape: [1, 1, values.len()], values };
                }
            }
            LayerSpec::Attention { heads } => {
                let parts = [3 * channels * channels, 3 * channels, channels * channels, channels];
                let [weights, bias, out_weights, out_bias] = parts.map(|n| oracle.take(n));
                images.iter_mut().for_each(|image| {
                    *image = attention(image, heads, [weights, bias], [out_weights, out_bias]);
                });
            }
            LayerSpec::Relu
            | LayerSpec::Tanh
            | LayerSpec::Sigmoid
            | LayerSpec::LeakyRelu { .. }
            | LayerSpec::Elu { .. }
            | LayerSpec::Gelu
            | LayerSpec::Silu => {
                for value in images.iter_mut().flat_map(|image| &mut image.values) {
                    let x = *value;
                    *value = match *layer {
                        LayerSpec::Relu => x.max(0.0),
                        LayerSpec::Tanh => x.tanh(),
                        LayerSpec::Sigmoid => 1.0 / (1.0 + (-x).exp()),
                        LayerSpec::LeakyRelu { slope } => x.max(0.0) + f64::from(slope) * x.min(0.0),
                        LayerSpec::Elu { alpha } => x.max(0.0) + f64::from(alpha) * (x.min(0.0).exp() - 1.0),
                        LayerSpec::Silu => x / (1.0 + (-x).exp()),
                        _ => {
                            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
                            0.5 * x * (1.0 + inner.tanh())
                        }
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
                normalise(images, &sets);
                if *layer != LayerSpec::InstanceNorm {
                    let n = if *layer == LayerSpec::LayerNorm { channels * pixels } else { channels };
                    let (weights, bias) = (oracle.take(n), oracle.take(n));
                    for image in images.iter_mut() {
                        for (k, value) in image.values.iter_mut().enumerate() {
                            let k = if n == channels { k / pixels } else { k };
                            *value = *value * weights[k] + bias[k];
                        }
                    }
                }
            }
        }
    }
}

/// The mean loss of a batch; `w` in PyTorch's order, parameter after parameter.
pub fn loss(spec: &NetworkSpec, w: &[f64], samples: &Memory, batch: &[u32], seed: Option<u64>) -> f64 {
    let [_, width, channels] = spec.input;
    let mut images: Vec<Image> = batch
        .iter()
        .map(|&i| {
            let input = &samples.inputs[i as usize];
            Image::new(spec.input, |c, y, x| f64::from(input[(y * width + x) * channels + c]))
        })
        .collect();
    apply(&spec.layers, &mut images, &mut Oracle { rest: w, seed, dropouts: 0 });
    let losses = images.iter().zip(batch).map(|(image, &i)| {
        let y = &image.values;
        let class = samples.classes[i as usize] as usize;
        match spec.loss {
            Loss::SoftmaxCrossEntropy => y.iter().map(|y| y.exp()).sum::<f64>().ln() - y[class],
            Loss::Logistic => (1.0 + y[0].exp()).ln() - class as f64 * y[0],
            Loss::Hinge => {
                let short = |other: usize| (1.0 - y[class] + y[other]).max(0.0);
                (0..y.len()).filter(|other| *other != class).map(short).sum::<f64>() / y.len() as f64
            }
            Loss::Squared | Loss::Absolute | Loss::Huber { .. } => {
                let values = &samples.values.as_ref().unwrap()[i as usize];
                let far = y.iter().zip(values).map(|(y, v)| (y - f64::from(*v)).abs());
                let of = |far: f64| match spec.loss {
                    Loss::Huber { delta } if far < f64::from(delta) => far * far / 2.0,
                    Loss::Huber { delta } => f64::from(delta) * (far - f64::from(delta) / 2.0),
                    Loss::Absolute => far,
                    _ => far * far,
                };
                mean(&far.map(of).collect::<Vec<_>>())
            }
        }
    });
    mean(&losses.collect::<Vec<_>>())
}
