//! Checkpoints: raw, and with a digest that fits.
#![no_main]

use dpsgd::train::TrainerState;
use dpsgd::train::checkpoint::Checkpoint;
use dpsgd::train::ledger::Digest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let sealed = [bytes, &Digest::of(&[bytes]).0].concat();
    for bytes in [bytes, &sealed] {
        if let Ok(checkpoint) = Checkpoint::from_bytes(bytes) {
            // Names may repeat in what was read, and then the last one counts.
            assert!(checkpoint.to_bytes().len() <= bytes.len());
            let _ = TrainerState::of(&checkpoint);
        }
    }
});
