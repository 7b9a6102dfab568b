//! Photographs.
#![no_main]

use std::path::Path;

use dpsgd::data::{ImageSize, folder};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let size = ImageSize { height: 5, width: 7, channels: 3 };
    match folder::decode(Path::new("a.png"), bytes, size) {
        Ok(pixels) => assert_eq!(pixels.len(), 5 * 7 * 3),
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    }
});
