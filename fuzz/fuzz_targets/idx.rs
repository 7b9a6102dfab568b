//! IDX files, plain or zipped.
#![no_main]

use dpsgd::data::idx;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], &[u8])| {
    let directory = std::env::temp_dir();
    let read = |name: &str, bytes: &[u8]| {
        let path = directory.join(format!("dpsgd-fuzz-{name}-{}", std::process::id()));
        std::fs::write(&path, bytes).expect("a file");
        let idx = idx::read(&path).ok()?;
        assert_eq!(idx.dimensions.iter().product::<usize>(), idx.values.len());
        Some((path, idx))
    };
    if let (Some(images), Some(labels)) = (read("images", input.0), read("labels", input.1)) {
        let _ = idx::dataset(images, labels, 10);
    }
});
