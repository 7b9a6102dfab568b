//! Mechanisms as they are written in files, and the parts of them that the ledger asks for.
#![no_main]

use dpsgd::privacy::mechanism::Mechanism;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u64, &str)| {
    let (round, text) = input;
    let Ok(mechanism) = serde_json::from_str::<Mechanism>(text) else { return };
    let written = serde_json::to_string(&mechanism).expect("a mechanism can be written");
    assert_eq!(serde_json::from_str::<Mechanism>(&written).expect("and read"), mechanism);
    assert_eq!(mechanism.config().check().expect("and built again"), mechanism);
    let rounds = mechanism.rounds();
    let next = mechanism.resume_at(round);
    assert!(next <= rounds && (next >= round || round > rounds));
    assert_eq!(mechanism.resume_at(next), next);
    if let Some(spent) = mechanism.spent(round).expect("a part of a run is a run") {
        assert_eq!(spent.rounds(), next);
    }
});
