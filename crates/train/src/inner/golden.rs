//! The inner algorithms on LeNet-5 against PyTorch's values (crates/engine/tests/golden/README.md).

use std::sync::Arc;

use dpsgd_engine::spec::LayerSpec;
use dpsgd_engine::{GradientWorker, Label, Level, Network, Samples, zoo};
use safetensors::SafeTensors;

use super::algorithm::{Draws, Scratch};
use super::{GroupResult, Inner, run};
use crate::randomness::Randomness;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../engine/tests/golden/lenet5_tanh.safetensors");
const LAYERS: [(&str, &str); 5] = [("0", "conv1"), ("3", "conv2"), ("7", "fc1"), ("9", "fc2"), ("11", "fc3")];

struct Images {
    pixels: Vec<f32>,
    classes: Vec<u32>,
}

impl Samples for Images {
    fn count(&self) -> usize {
        self.classes.len()
    }
    fn copy_input(&self, index: u32, out: &mut [f32]) {
        out.copy_from_slice(&self.pixels[index as usize * 784..][..784]);
    }
    fn label(&self, index: u32) -> Label<'_> {
        Label::Class(self.classes[index as usize])
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
}

#[test]
fn every_algorithm_matches_pytorch_on_lenet5() {
    let bytes = std::fs::read(FILE).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let network = Arc::new(Network::new(&zoo::lenet5([28, 28, 1], 10, LayerSpec::Tanh)).unwrap());
    let theirs = |name: &str| {
        let (layer, part) = name.split_once('.').unwrap();
        format!("{}.{part}", LAYERS.iter().find(|known| known.0 == layer).unwrap().1)
    };
    let w = network.from_safetensors(&bytes, |name| format!("param/{}", theirs(name))).unwrap();
    let classes = file.tensor("y").unwrap().data().as_chunks::<8>().0.iter();
    let images = Images {
        pixels: floats(file.tensor("x").unwrap().data()),
        classes: classes.map(|eight| i64::from_le_bytes(*eight) as u32).collect(),
    };
    let mut worker = GradientWorker::new(network.clone(), Arc::new(images), 4, Level::best());
    let randomness = Randomness::from_seed(1, 0);
    let draws = Draws { randomness: &randomness, round: 0, group: 0 };
    let mut scratch = Scratch::new(w.len(), 2);
    let mut result = vec![0.0; w.len()];
    for name in ["sgd", "momentum", "adam", "adagrad", "rmsprop"] {
        let step = if matches!(name, "sgd" | "momentum") { 0.1 } else { 0.01 };
        let inner = Inner::named(name, step).unwrap();
        for (kind, file_name, scale) in [
            (GroupResult::SumOfGradients, "gradient_sum", 1.0),
            (GroupResult::ModelDifference, "model_difference", step),
        ] {
            let group = (&w[..], &[0, 1, 2, 3][..]);
            run(&inner, kind, &mut worker, group, (&mut scratch, &mut result), draws).unwrap();
            let (mut difference, mut size) = (0.0, 0.0);
            for parameter in network.parameters() {
                let name = format!("inner/{name}/{file_name}/{}", theirs(&parameter.name));
                let Ok(tensor) = file.tensor(&name) else { continue };
                for (i, expected) in floats(tensor.data()).into_iter().enumerate() {
                    let given = f64::from(result[parameter.place(i)]) * scale;
                    difference += (given - f64::from(expected)).powi(2);
                    size += f64::from(expected).powi(2);
                }
            }
            let distance = (difference / size).sqrt();
            // Adaptive steps divide by the roots of tiny squares: single precision shows there.
            let allowed = if matches!(name, "sgd" | "momentum") { 2e-5 } else { 2e-3 };
            assert!(distance < allowed, "{name} {file_name}: {distance}");
        }
    }
}
