//! Networks that break, clients that do not keep up, disks that are full.

use std::sync::atomic::Ordering;
use std::time::Duration;

use dpsgd_federated::Reject;
use dpsgd_federated::nats::outlet::Sent;
use dpsgd_federated::nats::{Habits, NatsError};

use crate::broker::{Broker, terms, until};
use crate::proxy::Proxy;
use crate::site::{Coordinating, Site};

pub fn partitions() {
    let broker = Broker::of(terms(2, 1000));
    let coordinator = Coordinating::start(&broker.file("server.toml"));
    let proxy = Proxy::to(broker.port);
    let mut far = Site::through(&broker.file("client-1.toml"), Some(proxy.port));
    let mut near = Site::open(&broker.file("client-2.toml"));
    let mut sent = 0;
    for turn in 0..6 {
        far.send();
        near.send();
        sent += 2;
        // Cut in the middle of what the far client sends next; the near one goes on.
        let pause = Duration::from_millis(100 + 100 * turn);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if turn % 2 == 0 {
                    proxy.cut();
                } else {
                    proxy.held.store(true, Ordering::Relaxed);
                }
                std::thread::sleep(pause);
                proxy.mend();
            });
            scope.spawn(|| {
                for _ in 0..5 {
                    near.send();
                }
            });
            far.send();
        });
        sent += 6;
    }
    until("everything is folded", || coordinator.state().accepted() == sent);
    until("the far client has the newest model", || {
        far.newest().is_some_and(|model| model.version == coordinator.state().version)
    });
    coordinator.end().unwrap();
}

pub fn a_slow_client_gets_the_newest_model() {
    // Models of 400 kB, so that what piles up for the slow client exceeds what the broker keeps for it.
    let mut terms = terms(2, 100_000);
    terms.name = "slow".into();
    let broker = Broker::prepared(terms);
    let conf = broker.file("broker/nats.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(&conf, text + "max_pending: 9MB\nwrite_deadline: \"1s\"\n").unwrap();
    let mut broker = broker;
    broker.start();
    let coordinator =
        Coordinating::with(&broker.file("server.toml"), |habits| Habits { pace: Duration::ZERO, ..habits });
    let proxy = Proxy::to(broker.port);
    let slow = Site::through(&broker.file("client-1.toml"), Some(proxy.port));
    let mut models = slow.runtime.block_on(slow.outlet.models()).unwrap();
    let mut busy = Site::open(&broker.file("client-2.toml"));
    proxy.held.store(true, Ordering::Relaxed);
    for _ in 0..100 {
        busy.send();
    }
    until("the busy client is folded", || coordinator.state().accepted() == 100);
    proxy.mend();
    // It was cut off, and dials again: then it asks.
    until("the slow client has the newest model", || slow.newest().is_some_and(|model| model.version == 100));
    busy.send();
    let heard = slow.runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(300), models.next()).await.unwrap().unwrap()
    });
    assert!(!heard.is_empty(), "and hears of the next ones again");
    coordinator.end().unwrap();
}

pub fn a_full_disk() {
    let broker = Broker::prepared(terms(2, 10_000));
    let conf = broker.file("broker/nats.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    let line = text.lines().find(|line| line.contains("max_file_store")).unwrap().to_string();
    std::fs::write(&conf, text.replace(&line, "  max_file_store: 1500000")).unwrap();
    let mut broker = broker;
    broker.start();
    // The streams exist, and nobody folds: 40 kB an update fill 1.5 MB soon.
    let file = broker.file("server.toml");
    let coordinator = Coordinating::start(&file);
    coordinator.state();
    coordinator.end().unwrap();
    let mut sites = [Site::open(&broker.file("client-1.toml")), Site::open(&broker.file("client-2.toml"))];
    let mut full = false;
    'filling: for _ in 0..60 {
        for site in &mut sites {
            match site.send_frame(site.frame(site.round)) {
                Sent::Logged(_) => {
                    site.acknowledged.push(site.round);
                    site.round += 1;
                }
                Sent::Wait | Sent::Repeated | Sent::Unknown(_) => {
                    full = true;
                    break 'filling;
                }
            }
        }
    }
    assert!(full, "the disk filled");
    let promised: usize = sites.iter().map(|site| site.acknowledged.len()).sum();
    assert!(promised > 5, "{promised}");
    // Room is made, the broker restarts, everybody goes on: what was acknowledged is there.
    broker.kill();
    std::fs::write(&conf, std::fs::read_to_string(&conf).unwrap().replace("1500000", "1500000000")).unwrap();
    broker.start();
    let coordinator = Coordinating::start(&file);
    for site in &mut sites {
        site.send();
    }
    until("everything is folded", || coordinator.state().accepted() == promised as u64 + 2);
    // An answer that was lost makes a client send again; the fold rejects the copy, and nothing else.
    assert!(coordinator.state().rejected().keys().all(|reason| *reason == Reject::Replayed));
    coordinator.end().unwrap();
}

pub fn the_disk_stays_bounded() {
    let broker = Broker::of(terms(1, 50_000));
    let coordinator = Coordinating::start(&broker.file("server.toml"));
    let mut site = Site::open(&broker.file("client-1.toml"));
    let frame = site.frame(0).len() as u64;
    for _ in 0..300 {
        site.send();
    }
    until("everything is folded", || coordinator.state().accepted() == 300);
    until("the log is purged", || broker.stored() < 100 * frame);
    coordinator.end().unwrap();
}

pub fn a_lost_store_is_noticed() {
    let mut broker = Broker::of(terms(1, 1000));
    let file = broker.file("server.toml");
    let coordinator = Coordinating::start(&file);
    let mut site = Site::open(&broker.file("client-1.toml"));
    for _ in 0..10 {
        site.send();
    }
    until("everything is folded", || coordinator.state().accepted() == 10);
    coordinator.end().unwrap();
    broker.kill();
    // The log is lost, the state is not: sequences would begin anew, and updates be taken for old ones.
    let streams = broker.file("broker/jetstream/jetstream/COORDINATOR/streams");
    std::fs::remove_dir_all(streams.join("updates")).unwrap();
    broker.start();
    let coordinator = Coordinating::start(&file);
    until("it has ended", || coordinator.ended());
    assert!(matches!(coordinator.end(), Err(NatsError::Gap { saved: 10, .. })));
}
