//! Descriptions of networks and saved models that are almost right: an error of one line, or a network that runs. What
//! broke something is kept at the end as a test of its own.

mod common;
#[path = "../../data/tests/mutate/mod.rs"]
mod mutate;

use std::collections::HashMap;

use common::Numbers;
use dpsgd_engine::kernel::Level;
use dpsgd_engine::spec::{Loss, NetworkSpec};
use dpsgd_engine::{MOST_NUMBERS, Network, Worker, zoo};
use mutate::{changed, changed_text, config};
use proptest::prelude::*;

const EVERYTHING: &str = "input = [6, 7, 2]\nloss = \"softmax-cross-entropy\"\n[[layer]]\nkind = \"conv2d\"\nchannels = 4\n\
    kernel = [3, 2]\npadding = 1\nstride = 2\nbias = false\n[[layer]]\nkind = \"relu\"\n[[layer]]\nkind = \"group-norm\"\n\
    groups = 2\n[[layer]]\nkind = \"max-pool\"\nkernel = 2\nstride = 1\n[[layer]]\nkind = \"layer-norm\"\n[[layer]]\n\
    kind = \"flatten\"\n[[layer]]\nkind = \"linear\"\nfeatures = 5\n[[layer]]\nkind = \"tanh\"\n[[layer]]\n\
    kind = \"linear\"\nfeatures = 3\nbias = true\n";
const POOLED: &str = "input = [5, 5, 3]\nloss = \"squared\"\n[[layer]]\nkind = \"instance-norm\"\n[[layer]]\nkind = \"conv2d\"\n\
    channels = 3\nkernel = 3\n[[layer]]\nkind = \"batch-norm\"\n[[layer]]\nkind = \"sigmoid\"\n[[layer]]\n\
    kind = \"average-pool\"\nkernel = [2, 1]\n[[layer]]\nkind = \"global-average-pool\"\n[[layer]]\nkind = \"linear\"\nfeatures = 2\n";
const ROW: &str = "input = [1, 1, 4]\nloss = \"logistic\"\n[[layer]]\nkind = \"linear\"\nfeatures = 1\n";

/// The gradient of a group of three and the loss on it, whatever they are; small networks only, so that it is fast.
fn run(network: &Network) {
    let numbers: usize = network.spec().input.iter().product();
    if numbers > 2000 || network.dimension() > 20_000 {
        return;
    }
    let mut random = Numbers(3);
    let classes = if network.spec().loss == Loss::Logistic { 2 } else { network.outputs() as u32 };
    let samples = random.samples(3, numbers, classes);
    let mut worker = Worker::new(network, &samples, 3, Level::best());
    worker.weights_mut().copy_from_slice(&network.initial(|| random.unit()));
    let mut gradient = vec![0.0; network.dimension()];
    worker.gradient(&[0, 1, 2], &mut gradient);
    worker.evaluate(&[0, 1, 2]);
}

proptest! {
    #![proptest_config(config(20_000))]

    #[test]
    fn a_network_is_refused_or_runs(text in changed_text(vec![EVERYTHING.into(), POOLED.into(), ROW.into()])) {
        let Ok(spec) = toml::from_str::<NetworkSpec>(&text) else { return Ok(()) };
        // The tables of a convolution grow with its image, and thousands of them are made here.
        let numbers = spec.input.iter().fold(1_usize, |product, size| product.saturating_mul(*size));
        if (1 << 18..=MOST_NUMBERS).contains(&numbers) {
            return Ok(());
        }
        match Network::new(&spec) {
            Ok(network) => run(&network),
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

/// Every length and every bit of a small model: its frame is checked, its numbers are data. (No checksum is promised for
/// them: whoever changes a weight has another model, and the guarantee covers whatever is made of the released one.)
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
            // The text beside the numbers and the blanks around it are nobody's numbers.
            Ok(weights) => assert_eq!(weights, whole, "bit {bit}"),
            Err(_) => assert!(bit / 8 < numbers, "bit {bit}"),
        }
    }
    assert_eq!(other, 32 * whole.len());
}

fn refused(text: &str) -> String {
    Network::new(&toml::from_str(text).unwrap()).err().unwrap().to_string()
}

/// What broke: these numbers wrapped around to a kernel of no weights at all, and to a border that nobody had counted.
#[test]
fn numbers_that_wrap_around_are_refused() {
    let conv = |channels: &str, kernel: &str, padding: &str, stride: &str| {
        refused(&format!(
            "input = [28, 28, 1]\n[[layer]]\nkind = \"conv2d\"\nchannels = {channels}\nkernel = {kernel}\n\
             padding = {padding}\nstride = {stride}\n[[layer]]\nkind = \"flatten\"\n[[layer]]\nkind = \"linear\"\nfeatures = 10\n"
        ))
    };
    // 2³² × 2³² weights are none, in 64 bits.
    assert!(conv("1", "4294967296", "4294967295", "8589934592").contains("padding = 4294967295"));
    // An output of one pixel, an input of 80028 × 80028 with its border.
    assert!(conv("1", "40001", "40000", "100000").contains("padding = 40000"));
    assert!(conv("1", "9223372036854775807", "9223372036854775806", "1").contains("padding"));
    assert!(conv("9223372036854775807", "3", "1", "1").contains("channels"));
}
