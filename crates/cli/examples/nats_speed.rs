//! How fast a federation over a real broker is: TLS, every update synced to disk, one machine.
//!
//!     NATS_SERVER=… cargo run --release --package dpsgd-cli --example nats_speed -- [PARAMETERS [ROUNDS [SECONDS]]]
//!
//! Prints one JSON object: milliseconds from the moment a client begins to send an update to the moment the
//! model with it in has been received, checked and could replace w at *another* client; and updates folded a
//! second while all clients send as fast as they can, for this many seconds (0: not measured).

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use dpsgd::RawSettings;
use dpsgd::train::noise::standard_normals;
use dpsgd::train::{Purpose, Randomness, Rule as StepRule, Schedule};
use dpsgd_federated::nats::names::WHOLE;
use dpsgd_federated::nats::outlet::{Outlet, Sent};
use dpsgd_federated::nats::{Connection, Habits, Seen, serve};
use dpsgd_federated::setup::{Setup, doctor};
use dpsgd_federated::site::{ClientFile, ServerFile};
use dpsgd_federated::wire::{model, update};
use dpsgd_federated::{Agreed, Bounds, Rule, ServerOuter, Staleness, Terms};
use serde_json::json;
use tokio::runtime::Runtime;

const CLIENTS: u64 = 4;
/// Clients where a model is larger than a message: the broker's disk has room for four updates of each.
const LARGE_CLIENTS: u64 = 2;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Ends the broker with the program.
struct Broker(Child);

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn set_up(folder: &Path, dimension: u64, clients: u64) -> Result<Broker, Failure> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let terms = Terms {
        name: "speed".into(),
        dimension,
        clients,
        rounds: 1 << 30,
        max_staleness: 1 << 20,
        step: Schedule { start: 0.1, rule: StepRule::Constant },
        bounds: Bounds::of(1.0, 2.0 / 64.0),
        rule: Rule::EachUpdate,
        weight: Staleness::Constant,
        outer: ServerOuter::Plain,
    };
    let setup = Setup {
        terms,
        initial: vec![0.0; dimension as usize],
        hosts: vec!["localhost".into()],
        port,
        train: RawSettings::default(),
        test: None,
    };
    setup.write(&folder.join("fed"))?;
    let program =
        doctor::nats_server().ok_or("no nats-server: set NATS_SERVER, or see dpsgd federation doctor")?;
    let broker = Command::new(program)
        .args(["-c", "nats.conf"])
        .current_dir(folder.join("fed/broker"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let broker = Broker(broker);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(broker)
}

struct Site {
    runtime: Runtime,
    outlet: Outlet,
    terms: Arc<Agreed>,
    file: ClientFile,
    noise: Vec<f32>,
}

impl Site {
    fn open(folder: &Path, number: u64) -> Result<Self, Failure> {
        let (file, terms) = ClientFile::open(&folder.join(format!("fed/client-{number}.toml")))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let connection = runtime.block_on(Connection::open(&file.identity, "speed", |_| {}))?;
        let outlet = Outlet::new(connection, number);
        let mut noise = vec![0.0; terms.dimension()];
        let randomness = Randomness::from_seed(number, 0);
        standard_normals(&mut randomness.stream(Purpose::Noise, 0), &mut noise);
        noise.iter_mut().for_each(|value| *value *= terms.bounds.smallest_deviation as f32);
        Ok(Self { runtime, outlet, terms, file, noise })
    }

    /// Sends a round; its place in the log.
    fn send(&self, round: u64) -> u64 {
        let names = (self.file.client, round, 0);
        let frame = update::encode(self.terms.run(), names, self.terms.eta(round) as f32, &self.noise);
        let name = format!("{}-{round}", self.file.client);
        loop {
            let sent = self.runtime.block_on(self.outlet.send(&name, Bytes::from(frame.clone())));
            if let Sent::Logged(place) = sent {
                return place;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Milliseconds from sending at one site to the replaced model at another, in order.
fn latencies(folder: &Path, count: u64) -> Result<Vec<f64>, Failure> {
    let (sender, receiver) = (Site::open(folder, 1)?, Site::open(folder, 2)?);
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        receiver.runtime.block_on(async {
            let Ok(mut models) = receiver.outlet.models().await else { return };
            let limit = model::bytes(receiver.terms.dimension());
            while let Some(payload) = models.next().await {
                let Ok(Some(frame)) = receiver.outlet.whole(payload, limit).await else { continue };
                if let Ok(model) = model::decode(&frame, &receiver.terms)
                    && tell.send((model.sequence, Instant::now())).is_err()
                {
                    return;
                }
            }
        });
    });
    std::thread::sleep(Duration::from_millis(500));
    let mut found = Vec::new();
    for round in 0..count {
        let began = Instant::now();
        let place = sender.send(round);
        let replaced = told.iter().find(|(sequence, _)| *sequence >= place).ok_or("no model came")?.1;
        found.push(1e3 * replaced.duration_since(began).as_secs_f64());
        std::thread::sleep(Duration::from_millis(10));
    }
    found.sort_by(f64::total_cmp);
    Ok(found)
}

/// Updates folded a second while all clients send as fast as they can.
fn throughput(folder: &Path, clients: u64, folded: &AtomicU64, seconds: f64) -> Result<f64, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for number in 1..=clients {
        let site = Site::open(folder, number)?;
        let stop = Arc::clone(&stop);
        threads.push(std::thread::spawn(move || {
            let mut round = 1_000_000;
            while !stop.load(Ordering::Relaxed) {
                site.send(round);
                round += 1;
            }
        }));
    }
    std::thread::sleep(Duration::from_secs(1));
    let (began, before) = (Instant::now(), folded.load(Ordering::Relaxed));
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let rate = (folded.load(Ordering::Relaxed) - before) as f64 / began.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().map_err(|_| "a client failed")?;
    }
    Ok(rate)
}

fn main() -> Result<(), Failure> {
    let given = |place: usize, usual: u64| std::env::args().nth(place).map_or(Ok(usual), |text| text.parse());
    let (dimension, rounds, seconds) = (given(1, 61_706)?, given(2, 200)?, given(3, 10)?);
    let large = update::bytes(dimension as usize) > WHOLE;
    let clients = if large { LARGE_CLIENTS } else { CLIENTS };
    let folder = tempfile::tempdir()?;
    let _broker = set_up(folder.path(), dimension, clients)?;
    let (server, terms, initial) = ServerFile::open(&folder.path().join("fed/server.toml"))?;
    let (folded, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (counts, ends) = (Arc::clone(&folded), Arc::clone(&stop));
    let coordinator = std::thread::spawn(move || {
        // A pace between broadcasts spares the network, and would be all that is measured of a large model.
        let habits = if large { Habits { pace: Duration::ZERO, ..server.habits() } } else { server.habits() };
        serve(&server.identity, &terms, &initial.weights, habits, &mut |seen| {
            if let Seen::Saved(coordinator) = seen {
                counts.store(coordinator.state().accepted(), Ordering::Relaxed);
            }
            !ends.load(Ordering::Relaxed)
        })
    });
    let times = latencies(folder.path(), rounds)?;
    let measured = (seconds > 0).then(|| throughput(folder.path(), clients, &folded, seconds as f64));
    let rate = measured.transpose()?;
    stop.store(true, Ordering::Relaxed);
    coordinator.join().map_err(|_| "the coordinator failed")??;
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!(
        "{}",
        json!({
            "dimension": dimension,
            "clients": clients,
            "rounds": times.len(),
            "update_to_replaced_model_ms": { "p50": at(0.5), "p99": at(0.99), "worst": at(1.0) },
            "updates_folded_per_s": rate,
        })
    );
    Ok(())
}
