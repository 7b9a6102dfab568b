//! Members inside the test: a coordinator in a thread, clients that send noise.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use dpsgd::train::noise::standard_normals;
use dpsgd::train::{Purpose, Randomness};
use dpsgd_federated::nats::outlet::{Outlet, Sent};
use dpsgd_federated::nats::store::Store;
use dpsgd_federated::nats::{Connection, Habits, NatsError, Seen, serve};
use dpsgd_federated::site::{ClientFile, ServerFile};
use dpsgd_federated::wire::{model, update};
use dpsgd_federated::{Agreed, ClientId, Coordinator, Model, State};
use tokio::runtime::Runtime;

pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// A coordinator in a thread.
pub struct Coordinating {
    stop: Arc<AtomicBool>,
    state: Arc<Mutex<Option<State>>>,
    thread: Option<JoinHandle<Result<(), NatsError>>>,
}

impl Coordinating {
    pub fn start(file: &Path) -> Self {
        Self::with(file, |habits| habits)
    }

    pub fn with(file: &Path, habits: impl Fn(Habits) -> Habits) -> Self {
        let (server, terms, initial) = ServerFile::open(file).unwrap();
        let habits = habits(server.habits());
        let stop = Arc::new(AtomicBool::new(false));
        let state = Arc::new(Mutex::new(None));
        let (ends, shows) = (Arc::clone(&stop), Arc::clone(&state));
        let thread = std::thread::spawn(move || {
            serve(&server.identity, &terms, &initial.weights, habits, &mut |seen| {
                match seen {
                    Seen::Opened(now) | Seen::Saved(now) | Seen::Idle(now) => {
                        *shows.lock().unwrap() = Some(now.state().clone());
                    }
                    _ => {}
                }
                !ends.load(Ordering::Relaxed)
            })
        });
        Self { stop, state, thread: Some(thread) }
    }

    /// The state that was saved last, once there is one.
    pub fn state(&self) -> State {
        loop {
            if let Some(state) = self.state.lock().unwrap().clone() {
                return state;
            }
            if self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
                panic!("the coordinator has ended");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops it, and what it ended with.
    pub fn end(mut self) -> Result<(), NatsError> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Coordinating {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A client that sends noise, which every honest update is made of.
pub struct Site {
    pub runtime: Runtime,
    pub outlet: Outlet,
    pub terms: Arc<Agreed>,
    pub id: ClientId,
    /// The rounds that the broker acknowledged.
    pub acknowledged: Vec<u64>,
    pub round: u64,
}

impl Site {
    pub fn open(file: &Path) -> Self {
        Self::through(file, None)
    }

    /// The same through another port.
    pub fn through(file: &Path, port: Option<u16>) -> Self {
        let (file, terms) = ClientFile::open(file).unwrap();
        let mut identity = file.identity;
        if let Some(port) = port {
            identity.broker = format!("tls://localhost:{port}");
        }
        let runtime = runtime();
        let connection = runtime.block_on(Connection::open(&identity, "test", |_| {})).unwrap();
        let outlet = Outlet::new(connection, file.client.0);
        Self { runtime, outlet, terms, id: file.client, acknowledged: Vec::new(), round: 0 }
    }

    /// Noise of the right size, other noise for every client and round.
    pub fn noise(&self, round: u64) -> Vec<f32> {
        let mut values = vec![0.0; self.terms.dimension()];
        let randomness = Randomness::from_seed(1000 * self.id.0 + round, 0);
        standard_normals(&mut randomness.stream(Purpose::Noise, round), &mut values);
        let deviation = self.terms.bounds.smallest_deviation as f32;
        values.iter_mut().for_each(|value| *value *= deviation);
        values
    }

    pub fn frame(&self, round: u64) -> Vec<u8> {
        let names = (self.id, round, 0);
        update::encode(self.terms.run(), names, self.terms.eta(round) as f32, &self.noise(round))
    }

    pub fn send_frame(&self, frame: Vec<u8>) -> Sent {
        let name: String = frame.iter().rev().take(16).map(|byte| format!("{byte:02x}")).collect();
        self.runtime.block_on(self.outlet.send(&name, Bytes::from(frame)))
    }

    /// Sends the next round until the broker has it.
    pub fn send(&mut self) -> u64 {
        let frame = self.frame(self.round);
        loop {
            if let Sent::Logged(place) = self.send_frame(frame.clone()) {
                self.acknowledged.push(self.round);
                self.round += 1;
                return place;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The newest model at the broker.
    pub fn newest(&self) -> Option<Model> {
        let limit = model::bytes(self.terms.dimension());
        let frame = self.runtime.block_on(async {
            let payload = self.outlet.newest().await.ok()??;
            self.outlet.whole(payload, limit).await.ok()?
        })?;
        Some(model::decode(&frame, &self.terms).unwrap())
    }
}

/// What the broker holds for the coordinator: the saved state and the whole log, replayed from its beginning.
pub fn saved_and_replayed(file: &Path) -> (Vec<u8>, Vec<u8>, State) {
    let (server, terms, initial) = ServerFile::open(file).unwrap();
    let runtime = runtime();
    runtime.block_on(async {
        let connection = Connection::open(&server.identity, "test", |_| {}).await.unwrap();
        let mut store =
            Store::open(connection, terms.clients, terms.update_bytes(), server.keep_log).await.unwrap();
        let saved = store.load().await.unwrap().unwrap();
        let last = Coordinator::restore(Arc::clone(&terms), &saved).unwrap().state().sequence;
        let mut replayed = Coordinator::new(terms, initial.weights).unwrap();
        let mut log = store.follow(0).await.unwrap();
        while replayed.state().sequence < last {
            let entry = log.next().await.unwrap();
            replayed.apply(entry.sequence, entry.sender, &entry.bytes).unwrap();
        }
        (saved, replayed.snapshot(), replayed.state().clone())
    })
}
