//! `model.py` of networks with every layer: PyTorch gives the same outputs to 1e-5, where there is a Python
//! with torch and safetensors (`DPSGD_TORCH_PYTHON` names one).

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use dpsgd::RawSettings;
use dpsgd::engine::{GradientWorker, Label, Level, Network, Samples};
use serde_json::json;

const SAMPLES: usize = 5;

/// Samples in memory; an embedding takes any numbers, not only zeros and ones.
struct Pattern {
    inputs: Vec<Vec<f32>>,
}

impl Samples for Pattern {
    fn count(&self) -> usize {
        self.inputs.len()
    }
    fn copy_input(&self, index: u32, out: &mut [f32]) {
        out.copy_from_slice(&self.inputs[index as usize]);
    }
    fn label(&self, _: u32) -> Label<'_> {
        Label::Class(0)
    }
}

const POOLED: &str = r#"
input = [5, 5, 3]
layer = [
  { kind = "instance-norm" },
  { kind = "conv2d", channels = 4, kernel = [3, 2], bias = false },
  { kind = "layer-norm" },
  { kind = "sigmoid" },
  { kind = "average-pool", kernel = [2, 1] },
  { kind = "residual", projection = true, layer = [{ kind = "max-pool", kernel = 1, stride = 2 }, { kind = "relu" }] },
  { kind = "global-average-pool" },
  { kind = "layer-norm" },
  { kind = "linear", features = 3 },
  { kind = "tanh" },
  { kind = "residual", layer = [{ kind = "layer-norm" }, { kind = "linear", features = 3 }] },
]
"#;

/// A sequence of tokens, as in a transformer.
const SEQUENCE: &str = r#"
input = [1, 7, 4]
layer = [
  { kind = "residual", layer = [{ kind = "attention", heads = 2 }] },
  { kind = "residual", layer = [
    { kind = "conv2d", channels = 9, kernel = 1 }, { kind = "gelu" }, { kind = "dropout", rate = 0.1 },
    { kind = "conv2d", channels = 4, kernel = 1 },
  ] },
  { kind = "flatten" }, { kind = "dropout", rate = 0.5 }, { kind = "linear", features = 2 },
]
"#;

#[test]
fn pytorch_gives_the_same_outputs() {
    let python = std::env::var("DPSGD_TORCH_PYTHON").unwrap_or_else(|_| "python3".into());
    let has = Command::new(&python).args(["-c", "import torch, safetensors.torch"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        eprintln!("not tried: {python} has no torch and safetensors");
        return;
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/golden");
    let read = |name: &str| std::fs::read_to_string(golden.join(name)).unwrap();
    let texts = [read("blocks.toml"), read("huber.toml"), read("hinge.toml"), POOLED.into(), SEQUENCE.into()];
    for (i, text) in texts.iter().enumerate() {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("pytorch-{i}"));
        std::fs::create_dir_all(&folder).unwrap();
        let network = Arc::new(Network::new(&toml::from_str(text).unwrap()).unwrap());
        // Any settings: only `net` is asked.
        let raw = RawSettings { epochs: Some(1), sigma: Some(1.0), ..Default::default() };
        let program = dpsgd::pytorch::program(&raw.resolve().unwrap(), &network, None);
        std::fs::write(folder.join("model.py"), program).unwrap();
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 16_777_216.0
        };
        let weights: Vec<f32> = network.initial(&mut next).iter().map(|w| w + 0.2 * (next() - 0.5)).collect();
        let file = network.to_safetensors(&weights, HashMap::new()).unwrap();
        std::fs::write(folder.join("model.safetensors"), file).unwrap();

        let shape @ [height, width, channels] = network.spec().input;
        let (pixels, numbers) = (height * width, shape.iter().product());
        let inputs: Vec<Vec<f32>> =
            (0..SAMPLES).map(|_| (0..numbers).map(|_| 4.0 * next() - 2.0).collect()).collect();
        // Channels first for PyTorch; a row stays one.
        let theirs: Vec<Vec<f32>> = inputs
            .iter()
            .map(|x| (0..numbers).map(|k| x[k % pixels * channels + k / pixels]).collect())
            .collect();
        let form =
            if pixels == 1 { json!([SAMPLES, channels]) } else { json!([SAMPLES, channels, height, width]) };
        let script = "import sys, json, torch, model; x, form = json.load(sys.stdin); \
                      print(json.dumps(model.net(torch.tensor(x).view(form)).tolist()))";
        let stdin = folder.join("input.json");
        std::fs::write(&stdin, json!([theirs, form]).to_string()).unwrap();
        let output = Command::new(&python)
            .current_dir(&folder)
            .args(["-c", script])
            .stdin(std::fs::File::open(stdin).unwrap())
            .output()
            .unwrap();
        assert!(output.status.success(), "{i}: {}", String::from_utf8_lossy(&output.stderr));
        let found: Vec<Vec<f32>> = serde_json::from_slice(&output.stdout).unwrap();

        let mut worker = GradientWorker::new(network.clone(), Arc::new(Pattern { inputs }), 1, Level::best());
        worker.weights_mut().copy_from_slice(&weights);
        let ours = worker.scores(&(0..SAMPLES as u32).collect::<Vec<_>>());
        assert_eq!(found.concat().len(), ours.len());
        for (ours, theirs) in ours.iter().zip(found.concat()) {
            assert!((ours - theirs).abs() < 1e-5 * (1.0 + theirs.abs()), "network {i}: {ours} and {theirs}");
        }
    }
}
