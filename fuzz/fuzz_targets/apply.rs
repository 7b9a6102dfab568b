//! No bytes, even with a right checksum, make the coordinator panic or its model infinite.
#![no_main]

use dpsgd_federated::{Agreed, ClientId, Coordinator, wire};
use libfuzzer_sys::fuzz_target;

const TERMS: &str = include_str!("../../crates/federated/tests/vectors/terms.json");

fuzz_target!(|input: (u64, u64, u64, f32, Vec<f32>)| {
    let terms = Agreed::shared(serde_json::from_str(TERMS).unwrap()).unwrap();
    let (client, round, base, step, values) = input;
    let frame = wire::update::encode(terms.run(), (ClientId(client), round, base), step, &values);
    let mut coordinator = Coordinator::new(terms, vec![0.0; 3]).unwrap();
    for sequence in 1..=4 {
        coordinator.apply(sequence, ClientId(client), &frame).unwrap();
    }
    assert!(coordinator.state().weights.iter().all(|w| w.is_finite()));
});
