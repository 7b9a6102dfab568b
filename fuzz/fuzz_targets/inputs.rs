//! What `predict` reads: a schema, a zero byte, and a CSV file without its label.
#![no_main]

use dpsgd::data::schema::Schema;
use dpsgd::data::table;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let Ok(schema) = std::str::from_utf8(&bytes[..end]) else { return };
    let Ok(schema) = toml::from_str::<Schema>(schema) else { return };
    let path = std::env::temp_dir().join(format!("dpsgd-fuzz-inputs-{}", std::process::id()));
    std::fs::write(&path, bytes.get(end + 1..).unwrap_or_default()).expect("a file");
    match table::load_inputs(&path, &schema) {
        Ok(samples) => {
            let mut input = vec![0.0; samples.input_len()];
            for sample in 0..samples.len() {
                samples.copy_input(sample, &mut input);
                assert!(input.iter().all(|x| (0.0..=1.0).contains(x)), "{input:?}");
            }
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    }
});
