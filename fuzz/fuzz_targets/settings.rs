//! Settings in TOML, and what is decided from them.
#![no_main]

use dpsgd::RawSettings;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(mut raw) = toml::from_str::<RawSettings>(text) else { return };
    // Whatever needs the accountant takes long; that is the business of other tests.
    (raw.target_epsilon, raw.max_epsilon) = (None, None);
    if raw.noise_multiplier.is_none() {
        raw.sigma = raw.sigma.or(Some(1.0));
    }
    match raw.resolve() {
        Ok(settings) => {
            // What is written down is the same run again.
            if let Ok(written) = toml::to_string(&settings.to_raw()) {
                let again: RawSettings = toml::from_str(&written).expect("what was written can be read");
                let again = again.resolve().expect("what was decided is allowed");
                assert_eq!(again.mechanism, settings.mechanism);
            }
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    }
});
