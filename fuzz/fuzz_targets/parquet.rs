//! Parquet files under a fixed schema.
#![no_main]

use dpsgd::data::schema::{Column, Schema};
use dpsgd::data::table;
use libfuzzer_sys::fuzz_target;

/// The library that reads Parquet panics on some files; ours catches that and refuses. libFuzzer's driver would end the process
/// before; without its hook, a panic that nobody catches still does.
static QUIET: std::sync::Once = std::sync::Once::new();

fuzz_target!(|bytes: &[u8]| {
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| ())));
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
