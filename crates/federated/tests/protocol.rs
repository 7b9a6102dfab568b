//! The wire format: the vectors of the repository, every way to damage a frame, and what the server does with
//! frames that somebody made up.

use std::path::PathBuf;
use std::sync::Arc;

use dpsgd::train::Schedule;
use dpsgd_federated::wire::model::{self, Model, ModelRefused};
use dpsgd_federated::wire::state;
use dpsgd_federated::wire::update::{self, Update};
use dpsgd_federated::{
    Agreed, Bounds, ClientId, Combine, Coordinator, Outcome, Reject, Rule, ServerOuter, Staleness, Terms,
};
use proptest::prelude::*;
use sha2::{Digest, Sha256};

fn vector(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name)
}

/// The terms of the vectors, from their file.
fn terms() -> Arc<Agreed> {
    let text = std::fs::read_to_string(vector("terms.json")).unwrap();
    Agreed::shared(serde_json::from_str(&text).unwrap()).unwrap()
}

/// What `terms.json` holds.
fn written() -> Terms {
    Terms {
        name: "vectors 1".into(),
        dimension: 3,
        clients: 2,
        rounds: 100,
        max_staleness: 4,
        step: Schedule::constant(0.25),
        bounds: Bounds { signal: 1.0, smallest_deviation: 0.01, largest_deviation: 0.5, tail: 30.0 },
        rule: Rule::Buffer { size: 3, combine: Combine::TrimmedMean { trim: 1 } },
        weight: Staleness::Polynomial { power: 0.5 },
        outer: ServerOuter::Momentum { momentum: 0.5, nesterov: false },
    }
}

fn sample(terms: &Agreed) -> (Update, Model) {
    let update = Update {
        run: terms.run(),
        client: ClientId(2),
        round: 7,
        base: 5,
        step: 0.25,
        values: vec![0.5, -1.25, 0.0],
    };
    let model = Model { run: terms.run(), version: 9, sequence: 31, weights: vec![1.0, -2.5, 1e-3] };
    (update, model)
}

/// A coordinator with something in every field.
fn coordinator(terms: &Arc<Agreed>) -> Coordinator {
    let mut coordinator = Coordinator::new(terms.clone(), vec![0.5, 0.25, -1.0]).unwrap();
    let frame = |client: u64, round: u64, base: u64| {
        let values = [0.5, -0.25 * client as f32, 0.125 * round as f32];
        update::encode(terms.run(), (ClientId(client), round, base), 0.25, &values)
    };
    let log =
        [(1, 1, 0, 0), (2, 2, 0, 0), (1, 1, 1, 0), (1, 1, 1, 1), (2, 2, 2, 1), (2, 1, 5, 1), (9, 9, 0, 0)];
    for (i, (sender, client, round, base)) in log.into_iter().enumerate() {
        coordinator.apply(i as u64 + 1, ClientId(sender), &frame(client, round, base)).unwrap();
    }
    coordinator
}

/// Writes the vectors anew if `DPSGD_WRITE_VECTORS` is set, which is only right when the format changes.
#[test]
fn the_vectors_of_the_repository() {
    let fresh = written().check().unwrap();
    let (update, model) = sample(&fresh);
    if std::env::var_os("DPSGD_WRITE_VECTORS").is_some() {
        let text = serde_json::to_string_pretty(&written()).unwrap();
        std::fs::write(vector("terms.json"), text + "\n").unwrap();
        std::fs::write(vector("update.bin"), update.encode()).unwrap();
        std::fs::write(vector("model.bin"), model.encode()).unwrap();
        std::fs::write(vector("state.bin"), coordinator(&Arc::new(fresh.clone())).snapshot()).unwrap();
    }
    let terms = terms();
    assert_eq!(**terms, written());
    assert_eq!(terms.run(), fresh.run());
    let read = |name: &str| std::fs::read(vector(name)).unwrap();
    assert_eq!(read("update.bin"), update.encode());
    assert_eq!(update::decode(&read("update.bin"), &terms), Ok(update));
    assert_eq!(read("model.bin"), model.encode());
    assert_eq!(model::decode(&read("model.bin"), &terms), Ok(model));
    let saved = coordinator(&terms);
    assert_eq!(read("state.bin"), saved.snapshot());
    assert_eq!(state::decode(&read("state.bin"), &terms).unwrap(), *saved.state());
    // The specification gives this digest for readers in other languages.
    let digest: [u8; 32] = Sha256::digest(serde_json::to_string(&written()).unwrap()).into();
    assert_eq!(terms.run().0, digest[..16]);
}

#[test]
fn every_changed_byte_and_every_cut_is_noticed() {
    let terms = terms();
    let (update, model) = sample(&terms);
    let saved = coordinator(&terms).snapshot();
    let (update, model) = (update.encode(), model.encode());
    for frame in [&update, &model, &saved] {
        for i in 0..frame.len() {
            let mut bad = frame.clone();
            bad[i] ^= 1;
            assert!(update::decode(&bad, &terms).is_err());
            assert!(model::decode(&bad, &terms).is_err());
            assert!(state::decode(&bad, &terms).is_err());
            assert!(update::decode(&frame[..i], &terms).is_err());
            assert!(model::decode(&frame[..i], &terms).is_err());
            assert!(state::decode(&frame[..i], &terms).is_err());
        }
    }
    let longer = [&update[..], &[0]].concat();
    assert_eq!(update::decode(&longer, &terms), Err(Reject::Format));
}

/// Seals bytes that somebody made up.
fn sealed(mut body: Vec<u8>) -> Vec<u8> {
    let digest: [u8; 32] = Sha256::digest(&body).into();
    body.extend(digest);
    body
}

#[test]
fn made_up_frames_are_refused_with_their_reason() {
    let terms = terms();
    let (good, _) = sample(&terms);
    let mut coordinator = Coordinator::new(terms.clone(), vec![0.0; 3]).unwrap();
    let good = Update { base: 0, ..good };
    let mut next = 0;
    let mut told = |update: &Update| {
        next += 1;
        coordinator.apply(next, ClientId(2), &update.encode()).unwrap()
    };
    let other = dpsgd_federated::RunId([7; 16]);
    let cases = [
        (Update { run: other, ..good.clone() }, Reject::Run),
        (Update { client: ClientId(1), ..good.clone() }, Reject::Sender),
        (Update { round: 100, ..good.clone() }, Reject::BeyondPlan),
        (Update { round: u64::MAX, ..good.clone() }, Reject::BeyondPlan),
        (Update { base: 1, ..good.clone() }, Reject::FromFuture),
        (Update { base: u64::MAX, ..good.clone() }, Reject::FromFuture),
        (Update { step: 0.5, ..good.clone() }, Reject::Step),
        (Update { step: f32::NAN, ..good.clone() }, Reject::Step),
        (Update { values: vec![0.0; 2], ..good.clone() }, Reject::Dimension),
        (Update { values: vec![], ..good.clone() }, Reject::Dimension),
        (Update { values: vec![f32::NAN; 3], ..good.clone() }, Reject::NotFinite),
        (Update { values: vec![f32::INFINITY; 3], ..good.clone() }, Reject::NotFinite),
        (Update { values: vec![1e30, 0.0, 0.0], ..good.clone() }, Reject::Coordinate),
    ];
    for (update, reason) in cases {
        assert_eq!(told(&update), Outcome::Rejected(reason), "{update:?}");
    }
    assert!(matches!(told(&good), Outcome::Accepted { .. }));
    assert_eq!(told(&good), Outcome::Rejected(Reject::Replayed));
    // A header that claims more values than follow, or a huge number of them, allocates nothing.
    for claimed in [4u64, 1 << 40, u64::MAX, u64::MAX / 4 + 1] {
        let mut body = good.encode();
        body.truncate(body.len() - 32);
        body[56..64].copy_from_slice(&claimed.to_le_bytes());
        assert_eq!(update::decode(&sealed(body), &terms), Err(Reject::Format), "{claimed}");
    }
    let state = coordinator.state();
    assert!(state.weights.iter().all(|w| w.is_finite()));
    assert_eq!(state.rejected().values().sum::<u64>(), 14);
}

#[test]
fn models_that_would_harm_are_refused() {
    let terms = terms();
    let (_, good) = sample(&terms);
    let refused = |model: Model| model::decode(&model.encode(), &terms).unwrap_err();
    let infinite = Model { weights: vec![0.0, f32::NEG_INFINITY, 0.0], ..good.clone() };
    assert_eq!(refused(infinite), ModelRefused::NotFinite);
    let longer = Model { weights: vec![0.0; 4], ..good.clone() };
    assert_eq!(refused(longer), ModelRefused::Dimension { given: 4, expected: 3 });
    let other = Model { run: dpsgd_federated::RunId([0; 16]), ..good };
    assert_eq!(refused(other), ModelRefused::Run);
}

proptest! {
    /// Whatever comes, nothing panics and the coordinator stays what it is, but for its counts.
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), seal: bool, kind in 0usize..4) {
        let terms = terms();
        let mut body = bytes;
        if let Some(magic) = [b"DPFU", b"DPFM", b"DPFS"].get(kind)
            && body.len() >= 24
        {
            body[..4].copy_from_slice(*magic);
            body[4..8].copy_from_slice(&[1, 0, 0, 0]);
            body[8..24].copy_from_slice(&terms.run().0);
        }
        let frame = if seal { sealed(body) } else { body };
        let _ = model::decode(&frame, &terms);
        let _ = state::decode(&frame, &terms);
        let mut coordinator = Coordinator::new(terms, vec![0.0; 3]).unwrap();
        let outcome = coordinator.apply(1, ClientId(1), &frame).unwrap();
        prop_assert!(matches!(outcome, Outcome::Rejected(_)) || seal);
        prop_assert!(coordinator.state().weights.iter().all(|w| w.is_finite()));
    }
}
