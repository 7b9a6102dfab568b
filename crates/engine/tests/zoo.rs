//! The networks that are known by name fit the shapes they are made for.

use dpsgd_engine::{Network, zoo};

/// Weights and biases, layer by layer, counted by hand.
#[test]
fn the_small_network_fits_features_of_every_size() {
    let mixed = |channels: usize| channels * 64 + 64;
    let neighbours = 9 * 64 * 64 + 64;
    for (input, places) in [([8, 8, 243], 16), ([7, 7, 81], 9), ([2, 2, 81], 1), ([1, 1, 5], 1)] {
        let network = Network::new(&zoo::small_cnn(input, 10)).unwrap();
        let expected = mixed(input[2]) + neighbours + places * 64 * 10 + 10;
        assert_eq!((network.dimension(), network.outputs()), (expected, 10), "{input:?}");
    }
}
