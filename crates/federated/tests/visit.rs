//! A client that is called: the run, the ledger and the folded model are those of a client that stays connected.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dpsgd::train::{ModelError, Schedule};
use dpsgd::{Job, Outcome, PerSample, RawSettings, SavedRun, Settings};
use dpsgd_federated::{
    Agreed, Bounds, ClientId, Coordinator, Reject, Rule, ServerOuter, Staleness, Terms, Visit,
};

const D: usize = 5;
const ONE: ClientId = ClientId(1);

type Toy = PerSample<fn(&[f32], u32, &mut [f32]) -> Result<f32, ModelError>>;

fn model() -> Arc<Toy> {
    fn gradient(w: &[f32], i: u32, g: &mut [f32]) -> Result<f32, ModelError> {
        for (j, (g, w)) in g.iter_mut().zip(w).enumerate() {
            *g += w - ((i as usize + j) % 3) as f32;
        }
        Ok(0.0)
    }
    Arc::new(PerSample::new(D, 60, gradient as fn(&[f32], u32, &mut [f32]) -> Result<f32, _>))
}

/// Shuffled epochs of one round where m = 60, of six where m = 10; both are fast to account for.
fn settings(sampling: &str, groups: u64, step: f64) -> Settings {
    let poisson = sampling == "poisson";
    RawSettings {
        data: Some("numbers".into()),
        net: Some("line".into()),
        samples: (!poisson).then_some(60),
        rate: poisson.then_some(0.2),
        groups: Some(groups),
        rounds: Some(12),
        sigma: Some(1.0),
        clip: Some(1.0),
        step: Some(step),
        outer: Some(dpsgd::settings::OuterName::Plain),
        sampling: Some(sampling.parse().unwrap()),
        threads: Some(1),
        ..RawSettings::default()
    }
    .resolve()
    .unwrap()
}

fn terms() -> Arc<Agreed> {
    Agreed::shared(Terms {
        name: "called".into(),
        dimension: D as u64,
        clients: 2,
        rounds: 12,
        max_staleness: 100,
        step: Schedule::constant(0.1),
        bounds: Bounds { smallest_deviation: 2.0 / 60.0, ..Bounds::of(4.0, 0.2) },
        rule: Rule::EachUpdate,
        weight: Staleness::Constant,
        outer: ServerOuter::Plain,
    })
    .unwrap()
}

fn called(visit: &Visit, path: &Path, rounds: u64) -> Outcome {
    let job = Job::new(settings("shuffle", 60, 0.1), model(), visit.weights().to_vec());
    visit.train(job.start_or_resume(path).unwrap(), rounds, None, &mut ()).unwrap()
}

/// Twelve rounds in calls of five: with one client, w at the server is w at the client after every call.
#[test]
fn calls_are_one_run_and_updates_are_folded_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("site");
    let mut server = Coordinator::new(terms(), vec![0.5; D]).unwrap();
    let (mut sequence, mut read, mut lost) = (0, Vec::new(), true);
    let mut charged = Vec::new();
    for call in 0.. {
        let visit = Visit::new(terms(), ONE, &server.model_frame(), &path).unwrap();
        visit.acknowledged(&read).unwrap();
        let ended = visit.ended().unwrap();
        let outcome = (!ended).then(|| called(&visit, &path, 5));
        let updates = visit.updates().unwrap();
        // The second answer never arrives: the third holds its updates again, the same bytes.
        if call == 1 && std::mem::take(&mut lost) {
            assert_eq!(updates.iter().map(|(round, _)| *round).collect::<Vec<_>>(), [5, 6, 7, 8, 9]);
            read.clear();
            continue;
        }
        for (_, frame) in &updates {
            sequence += 1;
            server.apply(sequence, ONE, frame).unwrap();
            // A repeated answer changes nothing.
            sequence += 1;
            server.apply(sequence, ONE, frame).unwrap();
        }
        read = updates.iter().map(|(round, _)| *round).collect();
        let Some(outcome) = outcome else { break };
        charged.push(outcome.account.mechanism.rounds());
        if call == 0 {
            // The global model is not newer than what these rounds ended with, and the client keeps its own w.
            assert_eq!(server.state().weights, outcome.weights);
        }
        if outcome.finished {
            assert!(path.join("report.html").is_file());
        }
    }
    let state = server.state();
    assert_eq!((state.version, state.accepted()), (12, 12));
    assert_eq!(state.rejected().into_iter().collect::<Vec<_>>(), [(Reject::Replayed, 12)]);
    // A call charges what it performs: what the ledger had charged ahead is given back at its end.
    assert_eq!(charged, [5, 12]);
    let saved = SavedRun::open(&path).unwrap();
    let ledger = saved.ledger(&saved.settings().unwrap()).unwrap();
    assert!(ledger.closed && ledger.charged == 12 && ledger.resumes == 2);
    assert!(saved.verify().unwrap().findings.is_empty());
    let visit = Visit::new(terms(), ONE, &server.model_frame(), &path).unwrap();
    visit.acknowledged(&read).unwrap();
    assert!(visit.ended().unwrap() && visit.updates().unwrap().is_empty());
}

/// A newer global model replaces w; the update says on which version it is based.
#[test]
fn the_next_call_goes_on_from_the_new_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("site");
    let mut server = Coordinator::new(terms(), vec![0.0; D]).unwrap();
    let first = Visit::new(terms(), ONE, &server.model_frame(), &path).unwrap();
    called(&first, &path, 1);
    let (_, frame) = first.updates().unwrap().remove(0);
    server.apply(1, ONE, &frame).unwrap();
    let mut far = server.model();
    far.version = 7;
    far.weights = vec![1000.0; D];
    let second = Visit::new(terms(), ONE, &far.encode(), &path).unwrap();
    second.acknowledged(&[0]).unwrap();
    let outcome = called(&second, &path, 1);
    assert!(outcome.weights.iter().all(|w| *w > 900.0), "{:?}", outcome.weights);
    let (_, frame) = second.updates().unwrap().remove(0);
    let update = dpsgd_federated::wire::update::decode(&frame, &terms()).unwrap();
    assert_eq!((update.client, update.round, update.base), (ONE, 1, 7));
}

/// A shuffled epoch is six rounds, and a run cannot be resumed inside one: no round is lost between calls.
#[test]
fn epochs_with_one_draw_are_not_broken_off() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("site");
    let server = Coordinator::new(terms(), vec![0.0; D]).unwrap();
    let visit = Visit::new(terms(), ONE, &server.model_frame(), &path).unwrap();
    let job =
        || Job::new(settings("shuffle", 10, 0.1), model(), vec![0.0; D]).start_or_resume(&path).unwrap();
    for (asked, charged, finished) in [(5, 6, false), (1, 12, true)] {
        let outcome = visit.train(job(), asked, None, &mut ()).unwrap();
        assert_eq!((outcome.account.mechanism.rounds(), outcome.finished), (charged, finished));
        assert_eq!(visit.updates().unwrap().len() as u64, charged);
    }
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_spent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("site");
    let server = Coordinator::new(terms(), vec![0.0; D]).unwrap();
    let frame = server.model_frame();
    let told = |error: dpsgd::Error| error.to_string();
    let stranger = Visit::new(terms(), ClientId(3), &frame, &path).map_err(told);
    assert!(stranger.unwrap_err().contains("clients 1 to 2"));
    let damaged = Visit::new(terms(), ONE, &frame[1..], &path).map_err(told);
    assert!(damaged.unwrap_err().contains("not a model"));
    let visit = Visit::new(terms(), ONE, &frame, &path).unwrap();
    let step = visit.check(&settings("shuffle", 60, 0.2)).map_err(told).unwrap_err();
    assert!(step.contains("step = 0.2"), "{step}");
    assert!(!path.join("ledger").exists());
    // A private batch size needs a pace.
    let poisson =
        || Job::new(settings("poisson", 10, 0.1), model(), vec![0.0; D]).start_or_resume(&path).unwrap();
    let refused = visit.train(poisson(), 1, None, &mut ()).map_err(told).unwrap_err();
    assert!(refused.contains("pace"), "{refused}");
    let began = std::time::Instant::now();
    let pace = Duration::from_millis(50);
    visit.train(poisson(), 2, Some(pace), &mut ()).unwrap();
    assert!(began.elapsed() >= 2 * pace);
}

#[test]
fn rules_are_read_as_they_are_written() {
    use dpsgd_federated::Combine;
    assert_eq!("each".parse(), Ok(Rule::EachUpdate));
    assert_eq!("buffer:8".parse(), Ok(Rule::Buffer { size: 8, combine: Combine::Mean }));
    assert_eq!("median:3".parse(), Ok(Rule::Buffer { size: 3, combine: Combine::Median }));
    let trimmed = Rule::Buffer { size: 9, combine: Combine::TrimmedMean { trim: 2 } };
    assert_eq!("trimmed:9:2".parse(), Ok(trimmed));
    for wrong in ["", "buffer", "buffer:x", "trimmed:9", "each:1", "mean:3"] {
        assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
    }
}
