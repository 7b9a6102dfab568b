//! The facts of a run and the entries of the shared ledger: raw, and with a digest that fits.
#![no_main]

use dpsgd::SharedLedger;
use dpsgd::facts::Facts;
use dpsgd::shared_ledger::{Place, total};
use dpsgd::train::ledger::Digest;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

fuzz_target!(|text: &str| {
    let directory = std::env::temp_dir().join(format!("dpsgd-fuzz-facts-{}", std::process::id()));
    std::fs::create_dir_all(directory.join("runs")).expect("a directory");
    let mut sealed = text.to_string();
    if let Ok(Value::Object(mut fields)) = serde_json::from_str(text) {
        let digest = Digest::of(&[Value::Object(fields.clone()).to_string().as_bytes()]);
        fields.insert("sha256".into(), json!(digest.to_string()));
        sealed = Value::Object(fields).to_string();
    }
    for text in [text, &sealed] {
        std::fs::write(directory.join("facts.json"), text).expect("a file");
        std::fs::write(directory.join("runs/one.json"), text).expect("a file");
        if let Ok(facts) = Facts::read(&directory) {
            std::fs::write(directory.join("facts.json"), facts.text()).expect("a file");
            assert_eq!(Facts::read(&directory).expect("what was written can be read"), facts);
        }
        let ledger = SharedLedger::view(&Place::At(directory.clone())).expect("a place");
        if let Ok(entries) = ledger.expect("a ledger").entries() {
            let _ = total(&entries);
        }
    }
});
