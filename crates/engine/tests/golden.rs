//! End to end against PyTorch's values in double precision (see tests/golden/README.md).

mod common;

use std::sync::Arc;

use common::Memory;
use dpsgd_engine::spec::{LayerSpec, NetworkSpec};
use dpsgd_engine::{GradientWorker, Level, Network, zoo};
use safetensors::SafeTensors;

struct Golden {
    bytes: Vec<u8>,
    network: Arc<Network>,
    prefixes: Vec<&'static str>,
}

impl Golden {
    fn new(file: &str, spec: NetworkSpec, names: &[&'static str]) -> Self {
        let path = format!("{}/tests/golden/{file}.safetensors", env!("CARGO_MANIFEST_DIR"));
        let network = Arc::new(Network::new(&spec).unwrap());
        Golden { bytes: std::fs::read(path).unwrap(), network, prefixes: names.to_vec() }
    }

    /// The file names the layers that `nn.Sequential` numbers, unless there are no names.
    fn parameters(&self, kind: &str) -> Vec<f32> {
        let mut layers: Vec<&str> = self
            .network
            .parameters()
            .iter()
            .map(|parameter| parameter.name.split('.').next().unwrap())
            .collect();
        layers.dedup();
        self.network
            .from_safetensors(&self.bytes, |name| {
                if self.prefixes.is_empty() {
                    return format!("{kind}/{name}");
                }
                let (layer, part) = name.split_once('.').unwrap();
                let place = layers.iter().position(|known| *known == layer).unwrap();
                format!("{kind}/{}.{part}", self.prefixes[place])
            })
            .unwrap()
    }

    fn numbers(&self, name: &str) -> Vec<f32> {
        let tensors = SafeTensors::deserialize(&self.bytes).unwrap();
        let data = tensors.tensor(name).unwrap().data().to_vec();
        data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }

    fn samples(&self) -> Memory {
        let tensors = SafeTensors::deserialize(&self.bytes).unwrap();
        let classes = tensors.tensor("y").unwrap().data().as_chunks::<8>().0.iter();
        let classes: Vec<u32> = classes.map(|bytes| i64::from_le_bytes(*bytes) as u32).collect();
        let regression = self.network.spec().loss.is_regression();
        let values = regression
            .then(|| self.numbers("values").chunks(self.network.outputs()).map(<[f32]>::to_vec).collect());
        let [height, width, channels] = self.network.spec().input;
        let x = self.numbers("x");
        let inputs = x
            .chunks_exact(height * width * channels)
            .map(|image| {
                let pixels = height * width;
                (0..pixels * channels).map(|i| image[i % channels * pixels + i / channels]).collect()
            })
            .collect();
        Memory { inputs, classes, values }
    }
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let difference: f64 = a.iter().zip(b).map(|(a, b)| square(f64::from(a - b))).sum();
    let size: f64 = b.iter().map(|b| square(f64::from(*b))).sum();
    (difference / size).sqrt()
}

fn check(golden: &Golden) {
    let samples = Arc::new(golden.samples());
    let w = golden.parameters("param");
    for level in Level::available() {
        for (kind, size) in [("individual", 1), ("mixed", 2), ("batch", 8)] {
            let mut worker = GradientWorker::new(golden.network.clone(), samples.clone(), size, level);
            worker.weights_mut().copy_from_slice(&w);
            let logits: Vec<f32> = (0..8).flat_map(|i| worker.outputs(i).to_vec()).collect();
            let found = distance(&logits, &golden.numbers("logits"));
            assert!(found < 2e-6, "{level:?} logits: {found}");
            let scores = worker.scores(&[0, 1, 2, 3, 4, 5, 6, 7]);
            assert!(distance(&scores, &logits) < 1e-6, "{level:?} scores of a batch");
            let losses = golden.numbers("loss_per_sample");
            let loss = worker.evaluate(&[0, 1, 2, 3, 4, 5, 6, 7]).loss;
            assert!((loss - losses.iter().map(|loss| f64::from(*loss)).sum::<f64>()).abs() < 1e-5 * loss);

            let mut norms = Vec::new();
            let mut sum = vec![0.0; golden.network.dimension()];
            let everyone: Vec<u32> = (0..8).collect();
            let mut clip = |norm: f32| {
                norms.push(norm);
                (1.0 / norm).min(1.0)
            };
            worker.add_scaled(&everyone, size, &mut clip, &mut sum);
            assert!(distance(&norms, &golden.numbers(&format!("{kind}/norms"))) < 2e-6, "{level:?} {kind}");
            let expected = golden.parameters(&format!("{kind}/clipped_sum"));
            let found = distance(&sum, &expected);
            assert!(found < 3e-6, "{level:?} {kind}: {found}");

            // The plain path gives the same result.
            let mut plain = vec![0.0; golden.network.dimension()];
            let mut gradient = plain.clone();
            for group in everyone.chunks(size) {
                worker.gradient(group, &mut gradient);
                let norm = gradient.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt() as f32;
                for (sum, g) in plain.iter_mut().zip(&gradient) {
                    *sum += g * (1.0 / norm).min(1.0);
                }
            }
            assert!(distance(&plain, &expected) < 3e-6, "{level:?} {kind} plain");
        }
    }
}

#[test]
fn lenet5_matches_pytorch() {
    let spec = zoo::lenet5([28, 28, 1], 10, LayerSpec::Tanh);
    check(&Golden::new("lenet5_tanh", spec, &["conv1", "conv2", "fc1", "fc2", "fc3"]));
}

#[test]
fn paper_cnn_matches_pytorch() {
    let spec = zoo::paper_cnn([32, 32, 3], 10);
    check(&Golden::new("paper_cnn", spec, &["conv1", "conv2", "conv3", "conv4", "fc"]));
}

/// A network of blocks on images, and one on rows with every further loss; `tests/golden/layers.py` has them
/// in PyTorch.
#[test]
fn further_layers_and_losses_match_pytorch() {
    for name in ["blocks", "huber", "absolute", "hinge"] {
        let path = format!("{}/tests/golden/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let spec = toml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        check(&Golden::new(name, spec, &[]));
    }
}
