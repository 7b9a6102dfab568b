//! CSV files and the schemas that describe them; then which rows they share.
#![no_main]

use dpsgd::data::rows;
use dpsgd::data::schema::Schema;
use dpsgd::data::table::{self, TestRows};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &[u8])| {
    let (schema, csv) = input;
    let Ok(schema) = toml::from_str::<Schema>(schema) else { return };
    let path = std::env::temp_dir().join(format!("dpsgd-fuzz-table-{}", std::process::id()));
    std::fs::write(&path, csv).expect("a file");
    match table::load(&path, &TestRows::Every(2), &schema) {
        Ok(split) => {
            let repeated = rows::repeated(&split.train, &split.test);
            assert!(repeated.samples <= split.test.len());
            let mut input = vec![0.0; split.train.input_len()];
            split.train.copy_input(0, &mut input);
            assert!(input.iter().all(|x| (0.0..=1.0).contains(x)), "{input:?}");
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    }
});
