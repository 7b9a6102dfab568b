//! Almost valid network descriptions and saved models give a one-line error or a network that runs. Inputs
//! that once failed are kept at the end as tests.

mod common;
#[path = "../../data/tests/mutate/mod.rs"]
mod mutate;

use std::collections::HashMap;
use std::sync::Arc;

use common::Numbers;
use dpsgd_engine::spec::{Loss, NetworkSpec};
use dpsgd_engine::{GradientWorker, Level, MOST_NUMBERS, Network, zoo};
use mutate::{changed, changed_text, config};
use proptest::prelude::*;

const EVERYTHING: &str = "input = [6, 7, 2]\nloss = \"softmax-cross-entropy\"\n[[layer]]\nkind = \"conv2d\"\n\
    channels = 4\nkernel = [3, 2]\npadding = 1\nstride = 2\nbias = false\n[[layer]]\nkind = \"relu\"\n\
    [[layer]]\nkind = \"group-norm\"\ngroups = 2\n[[layer]]\nkind = \"max-pool\"\nkernel = 2\nstride = 1\n\
    [[layer]]\nkind = \"layer-norm\"\n[[layer]]\nkind = \"flatten\"\n[[layer]]\nkind = \"linear\"\n\
    features = 5\n[[layer]]\nkind = \"tanh\"\n[[layer]]\nkind = \"linear\"\nfeatures = 3\nbias = true\n";
const POOLED: &str = "input = [5, 5, 3]\nloss = \"squared\"\n[[layer]]\nkind = \"instance-norm\"\n[[layer]]\n\
    kind = \"conv2d\"\nchannels = 3\nkernel = 3\n[[layer]]\nkind = \"batch-norm\"\n[[layer]]\n\
    kind = \"sigmoid\"\n[[layer]]\nkind = \"average-pool\"\nkernel = [2, 1]\n[[layer]]\n\
    kind = \"global-average-pool\"\n[[layer]]\nkind = \"linear\"\nfeatures = 2\n";
const BLOCKS: &str = "input = [4, 5, 4]\nloss = \"hinge\"\n[[layer]]\nkind = \"residual\"\n[[layer.layer]]\n\
    kind = \"conv2d\"\nchannels = 4\nkernel = 3\npadding = 1\n[[layer.layer]]\nkind = \"gelu\"\n[[layer]]\n\
    kind = \"residual\"\nprojection = true\n[[layer.layer]]\nkind = \"conv2d\"\nchannels = 6\nkernel = 3\n\
    padding = 1\nstride = 2\n[[layer.layer]]\nkind = \"leaky-relu\"\nslope = 0.2\n[[layer]]\n\
    kind = \"attention\"\nheads = 2\n[[layer]]\nkind = \"flatten\"\n[[layer]]\nkind = \"dropout\"\nrate = 0.5\n\
    [[layer]]\nkind = \"linear\"\nfeatures = 3\n";
const CATEGORIES: &str = "input = [1, 1, 7]\nloss = { huber = { delta = 0.5 } }\n[[layer]]\nkind = \"embedding\"\n\
    columns = [3, 1, 2, 1]\nfeatures = 2\n[[layer]]\nkind = \"residual\"\n[[layer.layer]]\nkind = \"linear\"\n\
    features = 6\n[[layer.layer]]\nkind = \"elu\"\nalpha = 0.5\n[[layer]]\nkind = \"silu\"\n[[layer]]\n\
    kind = \"linear\"\nfeatures = 1\n";
const ROW: &str = "input = [1, 1, 4]\nloss = \"logistic\"\n[[layer]]\nkind = \"linear\"\nfeatures = 1\n";

/// The gradient of a group of three and the loss on it, whatever they are; only small networks, to stay
/// fast.
fn run(network: &Arc<Network>) {
    let numbers: usize = network.spec().input.iter().product();
    if numbers > 2000 || network.dimension() > 20_000 {
        return;
    }
    let mut random = Numbers(3);
    let classes = if network.spec().loss == Loss::Logistic { 2 } else { network.outputs() as u32 };
    let samples = random.samples(3, numbers, classes);
    let mut worker = GradientWorker::new(network.clone(), Arc::new(samples), 3, Level::best());
    worker.weights_mut().copy_from_slice(&network.initial(|| random.unit()));
    let mut gradient = vec![0.0; network.dimension()];
    worker.seed(&[1, 2, 3]);
    worker.gradient(&[0, 1, 2], &mut gradient);
    if !network.has_batch_norm() {
        worker.add_scaled(&[0, 1, 2], 1, &mut |_| 1.0, &mut gradient);
    }
    worker.evaluate(&[0, 1, 2]);
}

proptest! {
    #![proptest_config(config(20_000))]

    #[test]
    fn a_network_is_refused_or_runs(
        text in changed_text([EVERYTHING, POOLED, BLOCKS, CATEGORIES, ROW].map(str::to_string).to_vec())
    ) {
        let Ok(spec) = toml::from_str::<NetworkSpec>(&text) else { return Ok(()) };
        // The tables of a convolution grow with its image, and thousands of them are made here.
        let numbers = spec.input.iter().fold(1_usize, |product, size| product.saturating_mul(*size));
        if (1 << 18..=MOST_NUMBERS).contains(&numbers) {
            return Ok(());
        }
        match Network::new(&spec) {
            Ok(network) => run(&Arc::new(network)),
            Err(error) => prop_assert_eq!(error.to_string().lines().count(), 1, "{}", error),
        }
    }

    #[test]
    fn a_saved_model_is_refused_or_whole(bytes in changed(saved())) {
        for network in [logistic(), convolution()] {
            match network.from_safetensors(&bytes, str::to_string) {
                Ok(weights) => prop_assert_eq!(weights.len(), network.dimension()),
                Err(error) => prop_assert!(error.to_string().len() < 2000, "{}", error),
            }
        }
    }
}

fn logistic() -> Network {
    Network::new(&zoo::logistic([2, 2, 1], 3)).unwrap()
}

fn convolution() -> Network {
    Network::new(&toml::from_str(EVERYTHING).unwrap()).unwrap()
}

fn saved() -> Vec<Vec<u8>> {
    let save = |network: Network| {
        let mut random = Numbers(5);
        let weights = random.vector(network.dimension());
        network.to_safetensors(&weights, HashMap::from([("dpsgd".to_string(), "{}".to_string())])).unwrap()
    };
    vec![save(logistic()), save(convolution())]
}

/// A small model, cut at every length and with every bit flipped: its header is checked, its numbers are
/// data. (They have no checksum: a changed weight makes another model, and the guarantee covers anything
/// computed from the released one.)
#[test]
fn a_damaged_model_is_refused_or_has_other_weights() {
    let network = logistic();
    let file = saved().swap_remove(0);
    let read = |bytes: &[u8]| network.from_safetensors(bytes, str::to_string);
    let whole = read(&file).unwrap();
    for length in 0..file.len() {
        assert!(read(&file[..length]).is_err(), "{length}");
    }
    assert!(read(&[&file[..], &[0]].concat()).is_err());
    let numbers = file.len() - 4 * whole.len();
    let mut other = 0;
    for bit in 0..8 * file.len() {
        let mut changed = file.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        match read(&changed) {
            Ok(weights) if bit / 8 >= numbers => {
                let differing = weights.iter().zip(&whole).filter(|(a, b)| a.to_bits() != b.to_bits());
                assert_eq!(differing.count(), 1, "bit {bit}");
                other += 1;
            }
            // Text metadata and padding do not affect the numbers.
            Ok(weights) => assert_eq!(weights, whole, "bit {bit}"),
            Err(_) => assert!(bit / 8 < numbers, "bit {bit}"),
        }
    }
    assert_eq!(other, 32 * whole.len());
}

fn refused(text: &str) -> String {
    Network::new(&toml::from_str(text).unwrap()).err().unwrap().to_string()
}

/// Regression: these numbers wrapped around to a kernel without weights, and to a border that was not
/// counted.
#[test]
fn numbers_that_wrap_around_are_refused() {
    let conv = |channels: &str, kernel: &str, padding: &str, stride: &str| {
        refused(&format!(
            "input = [28, 28, 1]\n[[layer]]\nkind = \"conv2d\"\nchannels = {channels}\nkernel = {kernel}\n\
             padding = {padding}\nstride = {stride}\n[[layer]]\nkind = \"flatten\"\n[[layer]]\n\
             kind = \"linear\"\nfeatures = 10\n"
        ))
    };
    // 2³² × 2³² weights wrap around to 0 in 64 bits.
    assert!(conv("1", "4294967296", "4294967295", "8589934592").contains("padding = 4294967295"));
    // An output of one pixel, an input of 80028 × 80028 with its border.
    assert!(conv("1", "40001", "40000", "100000").contains("padding = 40000"));
    assert!(conv("1", "9223372036854775807", "9223372036854775806", "1").contains("padding"));
    assert!(conv("9223372036854775807", "3", "1", "1").contains("channels"));
}

/// Every layer says what it was given and what it takes.
#[test]
fn layers_that_do_not_fit_are_refused() {
    let after = |layers: &str| {
        refused(&format!("input = [4, 4, 3]\nlayer = [{layers}, {{ kind = \"linear\", features = 2 }}]\n"))
    };
    let row = |layers: &str| refused(&format!("input = [1, 1, 5]\nlayer = [{layers}]\n"));
    let conv = "{ kind = \"conv2d\", channels = 4, kernel = 3, padding = 1, stride = 2 }";
    for (said, expected) in [
        (after("{ kind = \"residual\" }"), "layer 0 (residual): it has no layers"),
        (after(&format!("{{ kind = \"residual\", layer = [{conv}] }}")), "4 × 4 × 3 into 2 × 2 × 4"),
        (
            after("{ kind = \"residual\", layer = [{ kind = \"group-norm\", groups = 2 }] }"),
            "layer 0 (residual): its layer 0 (group-norm): groups = 2: must divide the 3 channels",
        ),
        (
            after(
                "{ kind = \"residual\", projection = true, layer = [{ kind = \"average-pool\", kernel = [4, 1] }] }",
            ),
            "no 1 × 1 convolution turns 4 × 4 pixels into 1 × 4",
        ),
        (after("{ kind = \"residual\", layer = [{ kind = \"flatten\" }] }"), "must not end with a flatten"),
        (
            after(
                "{ kind = \"flatten\" }, { kind = \"residual\", layer = [{ kind = \"linear\", features = 48 }] }",
            ),
            "a flatten layer must be followed by a linear layer",
        ),
        (after("{ kind = \"dropout\", rate = 1.0 }"), "rate = 1: must be at least 0 and below 1"),
        (after("{ kind = \"dropout\", rate = nan }"), "rate = NaN"),
        (after("{ kind = \"leaky-relu\", slope = -0.1 }"), "slope = -0.1: must be between 0 and 1"),
        (after("{ kind = \"elu\", alpha = 0.0 }"), "alpha = 0: must be between"),
        (after("{ kind = \"attention\", heads = 2 }"), "heads = 2: must divide the 3 channels"),
        (after("{ kind = \"embedding\", columns = [3], features = 2 }"), "must be the first layer"),
        (row("{ kind = \"attention\" }"), "between the pixels"),
        (
            row("{ kind = \"embedding\", columns = [2, 2], features = 2 }"),
            "4 numbers in all, but the input has 5",
        ),
        (row("{ kind = \"embedding\", columns = [1, 1, 1, 1, 1], features = 2 }"), "nothing to embed"),
        (row("{ kind = \"embedding\", columns = [5], features = 0 }"), "features = 0: must be at least 1"),
        (
            row("{ kind = \"linear\", features = 2 }, { kind = \"embedding\", columns = [2], features = 2 }"),
            "must be the first layer",
        ),
        (
            refused("input = [1, 1, 5]\nloss = \"hinge\"\nlayer = [{ kind = \"linear\", features = 1 }]"),
            "needs an output for each class",
        ),
        (
            refused(
                "input = [1, 1, 5]\nloss = { huber = { delta = 0.0 } }\nlayer = [{ kind = \"linear\", features = 1 }]",
            ),
            "delta = 0: must be between",
        ),
    ] {
        assert!(said.contains(expected), "{said:?} does not say {expected:?}");
    }
}
