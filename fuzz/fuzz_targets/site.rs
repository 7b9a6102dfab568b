//! The files of a federation's members, `server.toml` and `client-N.toml`. What is printed holds no key.
#![no_main]

use dpsgd_federated::site::{ClientFile, ServerFile, check_settings};
use dpsgd_federated::{Agreed, wire};
use libfuzzer_sys::fuzz_target;

const MODEL: &[u8] = include_bytes!("../../crates/federated/tests/vectors/model.bin");
/// Stands where a key stands; long enough not to be written by chance.
const KEY: &str = "MC4CAQAwBQYDK2VwBCIEIHh5";

fuzz_target!(|text: &str| {
    // A member's file is opened where it lies; the initial model is read from there only.
    if let Ok(file) = toml::from_str::<ServerFile>(text)
        && let Ok(terms) = Agreed::shared(file.terms.clone())
    {
        let _ = (wire::model::decode(MODEL, &terms), file.habits());
    }
    let path = std::env::temp_dir().join(format!("dpsgd-fuzz-site-{}", std::process::id()));
    std::fs::write(&path, text).expect("a file");
    match ClientFile::open(&path) {
        Ok((mut file, terms)) => {
            assert!(!format!("{file:?}").contains(KEY));
            // Whatever needs the accountant takes long.
            (file.train.target_epsilon, file.train.max_epsilon) = (None, None);
            if file.train.noise_multiplier.is_none() {
                file.train.sigma = file.train.sigma.or(Some(1.0));
            }
            if let Ok(settings) = file.train.resolve() {
                let _ = check_settings(&settings, &terms);
            }
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    }
});
