//! No bytes make the decoder of update frames panic or allocate more than they are long: raw, and with a
//! checksum that fits. What is accepted is one frame only.
#![no_main]

use dpsgd::train::ledger::Digest;
use dpsgd_federated::{Agreed, wire};
use libfuzzer_sys::fuzz_target;

const TERMS: &str = include_str!("../../crates/federated/tests/vectors/terms.json");

fuzz_target!(|bytes: &[u8]| {
    let terms = Agreed::shared(serde_json::from_str(TERMS).unwrap()).unwrap();
    let sealed = [bytes, &Digest::of(&[bytes]).0].concat();
    for bytes in [bytes, &sealed] {
        if let Ok(update) = wire::update::decode(bytes, &terms) {
            assert_eq!(update.encode(), bytes);
        }
    }
});
