//! Killed at random moments, and two coordinators at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dpsgd_federated::ClientId;
use dpsgd_federated::nats::NatsError;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::broker::{Broker, terms, until};
use crate::site::{Coordinating, Site, saved_and_replayed};
use crate::training::{Running, Tables};

const KILLS: usize = 110;

pub fn the_second_coordinator_takes_over() {
    let broker = Broker::of(terms(1, 100));
    let file = broker.file("server.toml");
    let mut site = Site::open(&broker.file("client-1.toml"));
    let first = Coordinating::start(&file);
    site.send();
    until("the first folds", || first.state().accepted() == 1);
    let second = Coordinating::start(&file);
    assert_eq!(second.state().accepted(), 1);
    for _ in 0..20 {
        site.send();
    }
    until("the second folds", || second.state().accepted() == 21);
    until("the first has ended", || first.ended());
    assert!(matches!(first.end(), Err(NatsError::Fenced)));
    second.end().unwrap();
}

/// A coordinator, a broker and three clients are killed; a fourth client, which is not, knows what it was
/// promised.
pub fn killed_over_and_over() {
    let mut tables = Tables::new(4, 20_000, true);
    let file = tables.folder.join("fed/server.toml");
    let stop = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&stop);
    let client = tables.folder.join("fed/client-4.toml");
    let witness = std::thread::spawn(move || {
        let mut site = Site::open(&client);
        while !ends.load(Ordering::Relaxed) {
            site.send();
            std::thread::sleep(Duration::from_millis(5));
        }
        site.acknowledged
    });
    let mut serve = tables.serve(&["--no-test"]);
    let mut clients: Vec<Running> = (1..=3).map(|client| tables.join(client)).collect();
    let mut random = ChaCha8Rng::seed_from_u64(13);
    let mut kills = [0; 3];
    for kill in 0..KILLS {
        std::thread::sleep(Duration::from_millis(random.random_range(20..250)));
        match kill % 5 {
            0 | 1 => {
                serve.kill();
                serve = tables.serve(&["--no-test"]);
                kills[0] += 1;
            }
            2 => {
                tables.broker.kill();
                std::thread::sleep(Duration::from_millis(random.random_range(0..100)));
                tables.broker.start();
                kills[1] += 1;
            }
            _ => {
                let chosen = random.random_range(0..3);
                clients[chosen].kill();
                clients[chosen] = tables.join(chosen as u64 + 1);
                kills[2] += 1;
            }
        }
    }
    // A while in peace, so that the last ones killed come to their feet.
    std::thread::sleep(Duration::from_secs(3));
    stop.store(true, Ordering::Relaxed);
    let promised = witness.join().unwrap();
    clients.iter().for_each(Running::interrupt);
    drop(clients);
    serve.kill();
    // One that is left alone folds what is still in the log; what was lost would never come.
    let last = Coordinating::start(&file);
    let heard = |id| last.state().clients.get(&ClientId(id)).map_or(0, |known| known.accepted);
    until("what was acknowledged is folded", || heard(4) == promised.len() as u64);
    std::thread::sleep(Duration::from_secs(1));
    last.end().unwrap();
    let (saved, replayed, state) = saved_and_replayed(&file);
    println!(
        "  {} coordinators, {} brokers, {} clients killed; {} updates, {} promised to the witness; rejected {:?}",
        kills[0],
        kills[1],
        kills[2],
        state.accepted(),
        promised.len(),
        state.rejected()
    );
    assert!(saved == replayed, "the saved state is the fold of the log");
    assert_eq!(state.clients.len(), 4, "every client was heard");
    let heard = |id| state.clients[&ClientId(id)].accepted;
    assert_eq!(heard(4), promised.len() as u64, "what was acknowledged is folded, once");
    for id in 1..=3 {
        assert!(heard(id) > 50, "client {id} got on: {}", heard(id));
    }
    // Repeated sendings are the only thing that may be turned away.
    let replays = state.rejected().get(&dpsgd_federated::Reject::Replayed).copied().unwrap_or(0);
    assert_eq!(state.rejected().values().sum::<u64>(), replays, "{:?}", state.rejected());
}
