//! NumPy's arrays, alone and in archives.
#![no_main]

use std::path::Path;

use dpsgd::data::npy;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match npy::parse(Path::new("a.npy"), "x", bytes) {
        Ok(array) => assert_eq!(array.shape.iter().product::<usize>(), array.numbers.len()),
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    }
    if let Err(error) = npy::archive(Path::new("a.npz"), bytes.to_vec(), &[&["x"], &["y"]]) {
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
});
