//! The Adult table.
#![no_main]

use std::path::Path;

use dpsgd::data::adult;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(set) = adult::parse(Path::new("adult.data"), bytes) {
        assert_eq!((set.shape(), set.classes()), ([1, 1, 105], Some(2)));
    }
});
