//! A client at its site: a real run directory and ledger, the memory link, and a server.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dpsgd::train::{ModelError, Schedule};
use dpsgd::{Job, PerSample, RawSettings, Run, Settings};
use dpsgd_federated::memory::MemoryClient;
use dpsgd_federated::{
    Agreed, Bounds, ClientId, ClientLink, Conduct, Memory, Model, Participant, Rule, Server, ServerError,
    ServerOuter, Staleness, Terms,
};

const D: usize = 5;

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

fn settings(sampling: &str) -> Settings {
    let (poisson, cells) = (sampling == "poisson", sampling == "cells");
    RawSettings {
        data: Some("numbers".into()),
        net: Some("line".into()),
        samples: (!poisson && !cells).then_some(60),
        rate: poisson.then_some(0.2),
        rounds_per_epoch: cells.then_some(3),
        group_size: cells.then_some(2),
        groups: Some(10),
        rounds: Some(12),
        sigma: Some(1.0),
        clip: Some(1.0),
        step: Some(0.1),
        outer: Some(dpsgd::settings::OuterName::Plain),
        sampling: Some(if cells { "allocate" } else { sampling }.parse().unwrap()),
        seed: Some(3),
        threads: Some(1),
        ..RawSettings::default()
    }
    .resolve()
    .unwrap()
}

fn run(path: &Path, sampling: &str) -> Run<Toy> {
    Job::new(settings(sampling), model(), vec![0.0; D]).start_or_resume(path).unwrap()
}

fn terms() -> Arc<Agreed> {
    Agreed::shared(Terms {
        name: "site".into(),
        dimension: D as u64,
        clients: 1,
        rounds: 12,
        max_staleness: 100,
        step: Schedule::constant(0.1),
        bounds: Bounds::of(4.0, 0.2),
        rule: Rule::EachUpdate,
        weight: Staleness::Constant,
        outer: ServerOuter::Plain,
    })
    .unwrap()
}

/// The run of one client through a server is the run alone, with its ledger, its report and its model.
#[test]
fn a_site_with_its_own_ledger_and_report() {
    let folder = tempfile::tempdir().unwrap();
    let memory = Memory::default();
    let mut server = Server::open(memory.clone(), terms(), || vec![0.0; D], 1).unwrap();
    let mut federated = run(&folder.path().join("site"), "shuffle");
    let outbox = federated.path().join("outbox");
    let link = memory.client(ClientId(1));
    let conduct = Conduct { restarts: 2, pace: None };
    let mut participant =
        Participant::new(terms(), ClientId(1), federated.trainer(), link, &outbox, conduct).unwrap();
    let outcome = federated.train_by(&mut (), &mut |trainer| {
        let done = participant.round(trainer)?;
        server.fold(|_, _, _| {}).unwrap();
        Ok(done)
    });
    let outcome = outcome.unwrap();
    assert!(outcome.finished && outcome.directory.join("report.html").is_file());
    let alone = run(&folder.path().join("alone"), "shuffle").train(&mut ()).unwrap();
    assert_eq!(server.coordinator().state().weights, alone.weights);
    assert_eq!(server.coordinator().state().accepted(), 12);
    assert_eq!(outcome.account.guarantees, alone.account.guarantees);
    let measured = participant.measured();
    assert_eq!((measured.rounds, measured.sent, measured.restarts), (12, 12, 0));
    assert_eq!(std::fs::read_dir(&outbox).unwrap().count(), 0);
}

/// A link that is down for some time.
struct Down {
    memory: MemoryClient,
    until: Instant,
}

#[derive(Debug, thiserror::Error)]
#[error("down")]
struct IsDown;

impl From<Infallible> for IsDown {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl ClientLink for Down {
    type Error = IsDown;

    fn publish(&mut self, update: &[u8]) -> Result<(), IsDown> {
        if Instant::now() < self.until { Err(IsDown) } else { Ok(self.memory.publish(update)?) }
    }

    fn newest_model(&mut self) -> Result<Option<Arc<[u8]>>, IsDown> {
        Ok(self.memory.newest_model()?)
    }
}

/// What could not be sent is on the disk, and a new process sends the same bytes; a round is folded once.
#[test]
fn a_crash_with_a_full_outbox_loses_and_repeats_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("site");
    let outbox = path.join("outbox");
    let memory = Memory::default();
    let mut server = Server::open(memory.clone(), terms(), || vec![0.0; D], 4).unwrap();
    let charged = {
        let mut first = run(&path, "subsample");
        let until = Instant::now() + Duration::from_secs(3600);
        let link = Down { memory: memory.client(ClientId(1)), until };
        let conduct = Conduct::default();
        let mut participant =
            Participant::new(terms(), ClientId(1), first.trainer(), link, &outbox, conduct).unwrap();
        for _ in 0..3 {
            participant.round(first.trainer()).unwrap();
        }
        // Killed: the run is not closed, and its checkpoint is that of the beginning.
        first.trainer().ledger().spent()
    };
    assert!(charged >= 3);
    let kept: Vec<_> = std::fs::read_dir(&outbox).unwrap().collect();
    assert_eq!(kept.len(), 3);
    let mut second = run(&path, "subsample");
    let link = memory.client(ClientId(1));
    let conduct = Conduct::default();
    let mut participant =
        Participant::new(terms(), ClientId(1), second.trainer(), link, &outbox, conduct).unwrap();
    participant.flush().unwrap();
    server.fold(|_, _, _| {}).unwrap();
    assert_eq!(server.coordinator().state().accepted(), 3);
    for _ in charged..12 {
        participant.round(second.trainer()).unwrap();
    }
    server.fold(|_, _, _| {}).unwrap();
    let state = server.coordinator().state();
    assert_eq!(state.accepted(), 12 - charged + 3);
    assert!(state.rejected().is_empty(), "{:?}", state.rejected());
}

#[test]
fn a_private_batch_size_needs_a_pace_and_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = run(&folder.path().join("site"), "poisson");
    let outbox = site.path().join("outbox");
    let memory = Memory::default();
    let join = |site: &mut Run<Toy>, conduct| {
        let link = memory.client(ClientId(1));
        Participant::new(terms(), ClientId(1), site.trainer(), link, &outbox, conduct)
    };
    let refused = join(&mut site, Conduct::default()).err().unwrap().to_string();
    assert!(refused.contains("pace"), "{refused}");
    let pace = Some(Duration::from_millis(60));
    assert!(join(&mut site, Conduct { restarts: 1, pace }).is_err());
    let mut participant = join(&mut site, Conduct { restarts: 0, pace }).unwrap();
    let began = Instant::now();
    for _ in 0..3 {
        participant.round(site.trainer()).unwrap();
    }
    assert!(began.elapsed() >= 3 * Duration::from_millis(60));
}

/// A round that took longer than its pace does not leave when it is done, which would tell how long it took, but at
/// the end of the next slot.
#[test]
fn a_late_round_leaves_at_the_end_of_a_slot() {
    static SAMPLES: AtomicU32 = AtomicU32::new(0);
    fn slow(w: &[f32], i: u32, g: &mut [f32]) -> Result<f32, ModelError> {
        SAMPLES.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(25));
        g[0] += w[0] - i as f32;
        Ok(0.0)
    }
    let model = PerSample::new(D, 60, slow as fn(&[f32], u32, &mut [f32]) -> Result<f32, ModelError>);
    let folder = tempfile::tempdir().unwrap();
    let mut site = Job::new(settings("poisson"), Arc::new(model), vec![0.0; D])
        .start(&folder.path().join("site"))
        .unwrap();
    let outbox = site.path().join("outbox");
    let pace = Duration::from_millis(100);
    let link = Memory::default().client(ClientId(1));
    let conduct = Conduct { restarts: 0, pace: Some(pace) };
    let mut participant =
        Participant::new(terms(), ClientId(1), site.trainer(), link, &outbox, conduct).unwrap();
    let mut uneven = 0;
    for _ in 0..6 {
        let began = Instant::now();
        participant.round(site.trainer()).unwrap();
        let (took, samples) = (began.elapsed(), SAMPLES.swap(0, Ordering::Relaxed));
        // Four samples fill a slot.
        uneven += u32::from(samples % 4 != 0);
        assert!(took >= pace * samples.div_ceil(4).max(1), "{samples} samples left after {took:?}");
    }
    // Twelve samples are drawn on average: rounds are late, and some end within a slot.
    assert!(uneven > 0 && participant.measured().late > 0);
}

/// The cells of a random allocation are as many in every round, but what they hold is private.
#[test]
fn cells_need_a_pace() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = run(&folder.path().join("site"), "cells");
    let outbox = site.path().join("outbox");
    let mut join = |conduct| {
        let link = Memory::default().client(ClientId(1));
        Participant::new(terms(), ClientId(1), site.trainer(), link, &outbox, conduct)
            .err()
            .map(|e| e.to_string())
    };
    assert!(join(Conduct::default()).unwrap().contains("pace"));
    let pace = Some(Duration::from_millis(1));
    assert!(join(Conduct { restarts: 1, pace }).unwrap().contains("restarted"));
    assert_eq!(join(Conduct { restarts: 0, pace }), None);
}

/// Late, repeated, damaged and foreign models change nothing; the newest does.
#[test]
fn a_receiver_takes_the_newest_model_only() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = run(&folder.path().join("site"), "subsample");
    let outbox = site.path().join("outbox");
    let link = Memory::default().client(ClientId(1));
    let conduct = Conduct::default();
    let mut participant =
        Participant::new(terms(), ClientId(1), site.trainer(), link, &outbox, conduct).unwrap();
    let receiver = participant.receiver();
    let frame = |version: u64, value: f32| {
        Model { run: terms().run(), version, sequence: 0, weights: vec![value; D] }.encode()
    };
    assert_eq!(receiver.received(&frame(5, 1.0)), Ok(true));
    assert_eq!(receiver.received(&frame(5, 2.0)), Ok(false));
    assert_eq!(receiver.received(&frame(4, 2.0)), Ok(false));
    assert!(receiver.received(&frame(9, f32::NAN)).is_err());
    let mut damaged = frame(9, 3.0);
    damaged[60] ^= 1;
    assert!(receiver.received(&damaged).is_err());
    assert!(receiver.received(&frame(9, 3.0)[..40]).is_err());
    participant.round(site.trainer()).unwrap();
    assert_eq!(site.trainer().state().version, 5);
    assert_eq!(participant.client().refused(), 3);
}

#[test]
fn of_two_coordinators_one_is_fenced() {
    let memory = Memory::default();
    let open = || Server::open(memory.clone(), terms(), || vec![0.0; D], 1).unwrap();
    let (mut first, mut second) = (open(), open());
    memory.append(ClientId(1), Arc::from(&b"no update"[..]));
    assert_eq!(first.fold(|_, _, _| {}).unwrap(), 1);
    memory.append(ClientId(1), Arc::from(&b"nor this"[..]));
    // The entry that the first has folded and deleted is a gap for the second; it stops either way.
    assert!(matches!(second.fold(|_, _, _| {}), Err(ServerError::Gap(_) | ServerError::Fenced)));
    assert_eq!(first.fold(|_, _, _| {}).unwrap(), 1);
    assert_eq!(first.coordinator().state().rejected().values().sum::<u64>(), 2);
}
