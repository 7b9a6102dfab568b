//! The terms of a federation, in JSON and TOML: what is written down has one name, whoever reads it.
#![no_main]

use dpsgd_federated::terms::MOST_STALENESS;
use dpsgd_federated::{Agreed, Terms};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let json = serde_json::from_str::<Terms>(text).ok();
    for terms in json.into_iter().chain(toml::from_str::<Terms>(text).ok()) {
        match Agreed::shared(terms) {
            Ok(agreed) => {
                let written = serde_json::to_string(&**agreed).expect("terms can be written");
                let read: Terms = serde_json::from_str(&written).expect("and read");
                assert_eq!(Agreed::shared(read).expect("and agreed on").run(), agreed.run());
                for staleness in [0, 1, agreed.max_staleness, MOST_STALENESS] {
                    let weight = agreed.weight.weight(staleness);
                    assert!((0.0..=1.0).contains(&weight), "{weight}");
                }
            }
            Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
        }
    }
});
