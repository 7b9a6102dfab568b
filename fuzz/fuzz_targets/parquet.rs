//! Parquet files under a fixed schema.
#![no_main]

use dpsgd::data::schema::{Column, Schema};
use dpsgd::data::table;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let schema = Schema::new(
        Column::categorical("income", &["low", "high"]),
        vec![Column::numeric("age", 0.0, 100.0), Column::numeric("height", 1.0, 2.0)],
    );
    let path = std::env::temp_dir().join(format!("dpsgd-fuzz-{}.parquet", std::process::id()));
    std::fs::write(&path, bytes).expect("a file");
    match table::load_inputs(&path, &schema) {
        Ok(set) => {
            let mut input = vec![0.0; set.input_len()];
            set.copy_input(0, &mut input);
            assert!(input.iter().all(|x| (0.0..=1.0).contains(x)), "{input:?}");
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    }
});
