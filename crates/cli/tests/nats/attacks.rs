//! What a hostile client tries. Each attempt is refused, and the honest client beside it loses nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use dpsgd_federated::nats::outlet::Sent;
use dpsgd_federated::nats::{Connection, NatsError};
use dpsgd_federated::site::ClientFile;
use dpsgd_federated::wire::update;
use dpsgd_federated::{ClientId, Reject};
use futures_util::{FutureExt, StreamExt};

use crate::broker::{Broker, terms, until};
use crate::site::{Coordinating, Site};

/// An honest client and a hostile one, at one coordinator.
struct Stage {
    broker: Broker,
    coordinator: Coordinating,
    honest: Site,
    hostile: Site,
}

fn stage() -> Stage {
    let broker = Broker::of(terms(2, 1000));
    let coordinator = Coordinating::start(&broker.file("server.toml"));
    coordinator.state();
    let (hostile, honest) =
        (Site::open(&broker.file("client-1.toml")), Site::open(&broker.file("client-2.toml")));
    until("there is a model", || honest.newest().is_some());
    Stage { broker, coordinator, honest, hostile }
}

impl Stage {
    /// The honest client sends, and everything it ever sent is folded.
    fn all_is_well(&mut self) {
        self.honest.send();
        let (coordinator, sent) = (&self.coordinator, self.honest.acknowledged.len() as u64);
        let folded = || coordinator.state().clients.get(&ClientId(2)).map_or(0, |known| known.accepted);
        until("the honest update is folded", || folded() == sent);
        assert!(coordinator.state().clients[&ClientId(2)].rejected.is_empty());
    }

    fn rejected(&self, reason: Reject) -> u64 {
        let state = self.coordinator.state();
        state.clients.get(&ClientId(1)).and_then(|known| known.rejected.get(&reason).copied()).unwrap_or(0)
    }

    /// What the hostile client publishes, as raw as it can.
    fn publish(&self, subject: &str, reply: Option<&str>, headers: Option<HeaderMap>, payload: Vec<u8>) {
        let client = self.hostile.outlet.connection().client().clone();
        self.hostile.runtime.block_on(async {
            let (subject, payload) = (subject.to_string(), Bytes::from(payload));
            let headers = headers.unwrap_or_default();
            let sent = match reply {
                Some(reply) => {
                    client.publish_with_reply_and_headers(subject, reply.to_string(), headers, payload).await
                }
                None => client.publish_with_headers(subject, headers, payload).await,
            };
            sent.unwrap();
            client.flush().await.unwrap();
        });
    }
}

pub fn what_a_client_must_not_do() {
    let mut stage = stage();
    stage.all_is_well();
    let (state, model) = (stage.coordinator.state(), stage.honest.newest().unwrap());
    let frame = stage.honest.frame(7);
    // Another's subject, the model's, the state's, the log's.
    for subject in ["up.2", "model.current", "model.pulse", "state.current", "whole.model.x.0", "up.1.2"] {
        stage.publish(subject, None, None, frame.clone());
    }
    // JetStream's own interface: delete, purge, read the log, replace the streams.
    for request in [
        "$JS.API.STREAM.DELETE.updates",
        "$JS.API.STREAM.PURGE.updates",
        "$JS.API.STREAM.DELETE.state",
        "$JS.API.STREAM.MSG.DELETE.updates",
        "$JS.API.STREAM.UPDATE.updates",
        "$JS.API.CONSUMER.CREATE.updates",
        "$JS.API.DIRECT.GET.state.state.current",
        "$JS.API.DIRECT.GET.updates.up.2",
        "$JS.API.STREAM.INFO.updates",
    ] {
        let client = stage.hostile.outlet.connection().client().clone();
        let answer = stage.hostile.runtime.block_on(async {
            let asked = client.request(request, Bytes::new());
            tokio::time::timeout(Duration::from_millis(500), asked).await
        });
        // No answer, or that this account has no JetStream.
        let refused = match &answer {
            Ok(Ok(message)) if message.status.is_none() => {
                String::from_utf8_lossy(&message.payload).contains("JetStream not enabled for account")
            }
            _ => true,
        };
        assert!(refused, "{request} was answered: {answer:?}");
    }
    // A reply subject that the broker's acknowledgement would be written to.
    let junk = b"x".to_vec();
    for reply in
        ["model.current", "up.2", "state.current", "$KV.model.current", "$JS.API.STREAM.PURGE.updates"]
    {
        stage.publish("up.1", Some(reply), None, junk.clone());
    }
    // Headers that would roll up, expire or fence the log.
    for (name, value) in [("Nats-Rollup", "all"), ("Nats-Rollup", "sub"), ("Nats-TTL", "1s")] {
        let mut headers = HeaderMap::new();
        headers.insert(name, value);
        stage.publish("up.1", Some("_INBOX.x"), Some(headers), junk.clone());
    }
    // The honest client's next name, taken before it: the fold does not rely on names.
    let next = stage.honest.frame(stage.honest.round);
    let name: String = next.iter().rev().take(16).map(|byte| format!("{byte:02x}")).collect();
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Msg-Id", name.as_str());
    stage.publish("up.1", None, Some(headers), junk.clone());
    until("the junk is rejected", || stage.rejected(Reject::Format) >= 6);
    let after = stage.coordinator.state();
    assert_eq!((after.version, after.weights), (state.version, state.weights), "no weight moved");
    assert_eq!(stage.honest.newest().unwrap().weights, model.weights);
    // Nobody but the coordinator is heard as the model.
    let client = stage.honest.outlet.connection().client().clone();
    let mut heard = stage.honest.runtime.block_on(client.subscribe("model.current")).unwrap();
    stage.publish("model.current", None, None, frame);
    std::thread::sleep(Duration::from_millis(300));
    assert!(stage.honest.runtime.block_on(async { heard.next().now_or_never() }).is_none());
    // The broker takes the honest update, whose name is taken, for a repetition. It is sent again without one.
    stage.all_is_well();
    let log = std::fs::read_to_string(stage.broker.folder.path().join("broker.log")).unwrap_or_default();
    assert!(!log.contains("panic"), "{log}");
}

pub fn what_an_update_must_not_be() {
    let mut stage = stage();
    let hostile = &stage.hostile;
    let (run, id, eta) = (hostile.terms.run(), hostile.id, hostile.terms.eta(0) as f32);
    let with = |values: &[f32], round: u64| update::encode(run, (id, round, 0), eta, values);
    let noise = hostile.noise(0);
    let changed = |at: usize, value: f32| {
        let mut values = noise.clone();
        values[at] = value;
        values
    };
    let mut other_run = run;
    other_run.0[0] ^= 1;
    let mut damaged = with(&noise, 1);
    damaged[200] ^= 1;
    let half: Vec<f32> = noise.iter().map(|value| 0.5 * value).collect();
    let attempts = [
        (Reject::NotFinite, with(&changed(3, f32::NAN), 1)),
        (Reject::NotFinite, with(&changed(999, f32::INFINITY), 1)),
        (Reject::Coordinate, with(&changed(0, 1e30), 1)),
        (Reject::Norm, with(&half, 1)),
        (Reject::Dimension, with(&noise[..999], 1)),
        (Reject::Format, Vec::new()),
        (Reject::Format, vec![0xff; 5000]),
        (Reject::Format, with(&noise, 1)[..4000].to_vec()),
        (Reject::Format, b"dpsgd-parts-1 4000000000 0000".to_vec()),
        (Reject::Checksum, damaged),
        (Reject::Run, update::encode(other_run, (id, 1, 0), eta, &noise)),
        (Reject::Sender, update::encode(run, (ClientId(2), 1, 0), eta, &noise)),
        (Reject::Step, update::encode(run, (id, 1, 0), 100.0, &noise)),
        (Reject::BeyondPlan, update::encode(run, (id, u64::MAX, 0), eta, &noise)),
        (Reject::FromFuture, update::encode(run, (id, 1, 1 << 40), eta, &noise)),
    ];
    for (reason, frame) in attempts {
        let before = stage.rejected(reason);
        assert!(matches!(stage.hostile.send_frame(frame), Sent::Logged(_)));
        until(&format!("{reason} is rejected"), || stage.rejected(reason) == before + 1);
    }
    // A round three times: by the same name, which the broker drops and the client sends again without one, and
    // by none. The fold rejects both repetitions.
    let frame = stage.hostile.frame(1);
    assert!(matches!(stage.hostile.send_frame(frame.clone()), Sent::Logged(_)));
    assert!(matches!(stage.hostile.send_frame(frame.clone()), Sent::Logged(_)));
    stage.publish("up.1", None, None, frame);
    until("the repetitions are rejected", || stage.rejected(Reject::Replayed) == 2);
    assert_eq!(stage.coordinator.state().clients[&ClientId(1)].accepted, 1);
    // More than the stream takes, and more than the broker takes.
    assert!(!matches!(stage.hostile.send_frame(vec![0; 100_000]), Sent::Logged(_)), "too long for the log");
    let client = stage.hostile.outlet.connection().client().clone();
    let huge = stage.hostile.runtime.block_on(client.publish("up.1", Bytes::from(vec![0; 9 << 20])));
    assert!(huge.is_err(), "the client library refuses what the broker would cut off");
    stage.all_is_well();
}

pub fn certificates_of_others() {
    let mut stage = stage();
    let other = Broker::prepared(terms(2, 1000));
    let runtime = crate::site::runtime();
    let open = |identity| runtime.block_on(Connection::open(&identity, "test", |_| {}));
    let own = ClientFile::open(&stage.broker.file("client-1.toml")).unwrap().0.identity;
    let foreign = ClientFile::open(&other.file("client-1.toml")).unwrap().0.identity;
    // A client of another federation at our broker: our broker's certificate is trusted, its own is not.
    let mut stranger = own.clone();
    (stranger.certificate, stranger.key) = (foreign.certificate.clone(), foreign.key.clone());
    assert!(matches!(open(stranger), Err(NatsError::NotAdmitted { .. })), "a foreign client");
    // Our client at a broker that another authority certified.
    let mut lured = own.clone();
    lured.ca = foreign.ca.clone();
    assert!(matches!(open(lured), Err(NatsError::NotAdmitted { .. })), "a foreign broker");
    // The broker's own certificate is not a member's.
    let mut posing = own.clone();
    posing.certificate = std::fs::read_to_string(stage.broker.file("broker/broker.pem")).unwrap();
    posing.key = std::fs::read_to_string(stage.broker.file("broker/broker.key")).unwrap();
    assert!(matches!(open(posing), Err(NatsError::NotAdmitted { .. })), "the broker as a client");
    // A key that does not belong to the certificate.
    let mut mixed = own.clone();
    mixed.key = foreign.key;
    assert!(open(mixed).is_err(), "another's key");
    // Without TLS there is no conversation.
    let mut plain = TcpStream::connect(("127.0.0.1", stage.broker.port)).unwrap();
    plain.write_all(b"CONNECT {\"verbose\":false,\"user\":\"CN=client-2\"}\r\nPUB up.2 1\r\nx\r\n").unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    let mut said = Vec::new();
    let _ = plain.read_to_end(&mut said);
    assert!(!String::from_utf8_lossy(&said).contains("+OK"));
    stage.all_is_well();
}

pub fn a_flood_fills_only_its_own_room() {
    let Stage { broker, coordinator, mut honest, hostile } = stage();
    let file = broker.file("server.toml");
    // Nobody folds, so the log fills.
    coordinator.end().unwrap();
    let mut taken = 0;
    let refused = (0..200).any(|round| match hostile.send_frame(hostile.frame(round)) {
        Sent::Logged(_) => {
            taken += 1;
            false
        }
        Sent::Wait => true,
        other => panic!("{other:?}"),
    });
    assert!(refused && taken == 64, "{taken} were taken");
    for _ in 0..20 {
        honest.send();
    }
    let coordinator = Coordinating::start(&file);
    until("all is folded", || coordinator.state().accepted() == 84);
    assert!(matches!(hostile.send_frame(hostile.frame(200)), Sent::Logged(_)), "room again");
    coordinator.end().unwrap();
}
