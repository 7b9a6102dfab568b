//! Networks in TOML.
#![no_main]

use dpsgd::engine::Network;
use dpsgd::engine::spec::NetworkSpec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(spec) = toml::from_str::<NetworkSpec>(text) else { return };
    // The tables of a convolution grow with its image.
    let numbers = spec.input.iter().fold(1_usize, |product, size| product.saturating_mul(*size));
    if numbers > 1 << 16 {
        return;
    }
    match Network::new(&spec) {
        Ok(network) => assert!(network.dimension() > 0 || network.outputs() > 0),
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    }
});
