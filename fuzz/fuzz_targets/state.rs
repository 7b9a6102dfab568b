//! No bytes make the decoder of state frames panic or allocate more than they are long: raw, and with a
//! checksum that fits. What is accepted is written as a frame that says the same.
#![no_main]

use dpsgd::train::ledger::Digest;
use dpsgd_federated::{Agreed, wire};
use libfuzzer_sys::fuzz_target;

const TERMS: &str = include_str!("../../crates/federated/tests/vectors/terms.json");

fuzz_target!(|bytes: &[u8]| {
    let terms = Agreed::shared(serde_json::from_str(TERMS).unwrap()).unwrap();
    let sealed = [bytes, &Digest::of(&[bytes]).0].concat();
    for bytes in [bytes, &sealed] {
        if let Ok(state) = wire::state::decode(bytes, &terms) {
            // The entries of a frame may be in any order; those that are written are sorted.
            let written = wire::state::encode(&state, &terms);
            let again = wire::state::decode(&written, &terms).expect("what was written can be read");
            assert_eq!(wire::state::encode(&again, &terms), written);
        }
    }
});
