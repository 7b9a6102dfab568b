//! Batches of CIFAR-10.
#![no_main]

use std::path::Path;

use dpsgd::data::cifar::Batches;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut batches = Batches::default();
    if batches.add(Path::new("batch.bin"), bytes).is_ok() {
        assert_eq!(batches.dataset().expect("whole records").len() * 3073, bytes.len());
    }
});
