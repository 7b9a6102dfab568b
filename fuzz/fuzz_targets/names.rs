//! Short texts that name something: runs, digests, samplers, data sets, splits, delays, subjects, and
//! pointers to the parts of a large frame. What can be read is written as it was read, or as the same again.
#![no_main]

use std::fmt::{Debug, Display};
use std::str::FromStr;

use dpsgd::data::Known;
use dpsgd::privacy::adversary::Adversary;
use dpsgd::privacy::mechanism::SamplingKind;
use dpsgd::train::ledger::Digest;
use dpsgd_federated::RunId;
use dpsgd_federated::federate::Split;
use dpsgd_federated::nats::coordinator::Pulse;
use dpsgd_federated::nats::{names, parts::Pointer};
use dpsgd_federated::simulate::Delay;
use libfuzzer_sys::fuzz_target;

fn again<T: FromStr + Display + PartialEq + Debug>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        assert_eq!(value.to_string().parse::<T>().ok(), Some(value));
    }
}

fuzz_target!(|bytes: &[u8]| {
    if let Some(pointer) = Pointer::decode(bytes, 1 << 30) {
        assert_eq!(Pointer::decode(&pointer.encode(), 1 << 30).as_ref(), Some(&pointer));
        let subject = names::model_part(&pointer.place, 0);
        assert!(subject.matches('.').count() == 3 && !subject.contains(['*', '>', ' ']));
    }
    if let Ok(pulse) = serde_json::from_slice::<Pulse>(bytes) {
        let written = serde_json::to_vec(&pulse).expect("a pulse can be written");
        assert_eq!(serde_json::from_slice::<Pulse>(&written).expect("and read"), pulse);
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    again::<RunId>(text);
    again::<Digest>(text);
    again::<SamplingKind>(text);
    again::<Adversary>(text);
    again::<Known>(text);
    again::<Split>(text);
    again::<Delay>(text);
    if let Some(client) = names::sender(text) {
        assert_eq!(names::sender(&names::update(client)), Some(client));
    }
});
