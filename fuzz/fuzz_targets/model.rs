//! Models in safetensors files.
#![no_main]

use std::sync::LazyLock;

use dpsgd::engine::Network;
use dpsgd::engine::spec::NetworkSpec;
use libfuzzer_sys::fuzz_target;

static NETWORK: LazyLock<Network> = LazyLock::new(|| {
    let text = "input = [1, 1, 4]\nloss = \"logistic\"\n[[layer]]\nkind = \"linear\"\nfeatures = 1\n";
    let spec: NetworkSpec = toml::from_str(text).expect("a network");
    Network::new(&spec).expect("a network")
});

fuzz_target!(|bytes: &[u8]| {
    if let Ok(weights) = NETWORK.from_safetensors(bytes, str::to_string) {
        assert_eq!(weights.len(), NETWORK.dimension());
    }
});
