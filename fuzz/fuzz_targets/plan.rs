//! Plans in JSON, as the ledger of a library's run holds them.
#![no_main]

use dpsgd::train::Plan;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(plan) = serde_json::from_str::<Plan>(text) else { return };
    let written = serde_json::to_string(&plan).expect("a plan can be written");
    let read: Plan = serde_json::from_str(&written).expect("and read");
    assert_eq!(read.mechanism(), plan.mechanism());
    for round in [0, plan.rounds() / 2, plan.rounds() - 1] {
        let position = plan.position(round);
        assert!(position.round == round && position.round < position.epoch_end);
        assert!(plan.divisor(&position) > 0.0 && plan.phase(&position).sigma() > 0.0);
    }
});
