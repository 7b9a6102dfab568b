//! The configuration of the broker.

use std::fmt::Write;

use crate::nats::names::{
    COORDINATOR, COORDINATOR_ACCOUNT, MAX_PAYLOAD, MODEL_REQUEST, PARTS, WHOLE, account, backlog, direct_get,
    member, parts_bytes, update,
};

/// What the configuration depends on.
#[derive(Clone, Debug)]
pub struct BrokerConfig<'a> {
    /// The run, for the name of the server.
    pub run: &'a str,
    /// The address and port to listen on.
    pub listen: &'a str,
    /// The number of clients, which are named 1, 2, …
    pub clients: u64,
    /// Bytes of an update with its header.
    pub frame: usize,
}

impl BrokerConfig<'_> {
    /// Bytes that the broker may use on disk: the log, two states and three models with the parts they may be
    /// in, each twice over because room is given back in blocks.
    pub fn store(&self) -> u64 {
        let frame = self.frame as u64;
        let log = self.clients * backlog(self.clients, self.frame) * frame.min(WHOLE as u64);
        let parts = if self.large() { self.clients * parts_bytes(self.frame) as u64 } else { 0 };
        (2 * (log + parts + 8 * frame)).max(1 << 30)
    }

    /// Whether a frame has to be cut into parts.
    pub fn large(&self) -> bool {
        self.frame > WHOLE
    }

    /// The text of `nats.conf`.
    ///
    /// # Guarantee
    /// Every client has an account of its own, whose only ways out are its own update subject and requests
    /// for the model. Permissions inside one account would not do: the broker's acknowledgement goes to
    /// whatever reply subject a client names, the model's own included.
    pub fn text(&self) -> String {
        let Self { run, listen, clients, .. } = self;
        let store = self.store();
        let all = (1..=*clients).map(account).collect::<Vec<_>>().join(", ");
        let mut exports = format!(
            "      {{ stream: \"model.>\", accounts: [{all}] }}\n      \
             {{ service: \"{MODEL_REQUEST}\", accounts: [{all}] }}\n"
        );
        let model_parts = direct_get(PARTS, "whole.model.>");
        if self.large() {
            let _ = writeln!(exports, "      {{ service: \"{model_parts}\", accounts: [{all}] }}");
        }
        let mut accounts = String::new();
        for client in 1..=*clients {
            let (name, up) = (account(client), update(client));
            let _ = writeln!(exports, "      {{ service: \"{up}\", accounts: [{name}] }}");
            let mut imports = format!(
                "      {{ stream: {{ account: {COORDINATOR_ACCOUNT}, subject: \"model.>\" }} }}\n      \
                 {{ service: {{ account: {COORDINATOR_ACCOUNT}, subject: \"{MODEL_REQUEST}\" }} }}\n      \
                 {{ service: {{ account: {COORDINATOR_ACCOUNT}, subject: \"{up}\" }} }}\n"
            );
            if self.large() {
                let part = format!("part.{client}.>");
                let _ = writeln!(exports, "      {{ service: \"{part}\", accounts: [{name}] }}");
                for subject in [&part, &model_parts] {
                    let _ = writeln!(
                        imports,
                        "      {{ service: {{ account: {COORDINATOR_ACCOUNT}, subject: \"{subject}\" }} }}"
                    );
                }
            }
            let _ = write!(
                accounts,
                "  {name} {{\n    users: [{{ user: \"CN={}\" }}]\n    limits {{ max_connections: 4, \
                 max_subscriptions: 64 }}\n    imports: [\n{imports}    ]\n  }}\n",
                member(client)
            );
        }
        format!(
            "# The broker of federation {run}. Start it in this directory: nats-server -c nats.conf\n\
             server_name: \"dpsgd-{run}\"\n\
             listen: \"{listen}\"\n\
             max_payload: {MAX_PAYLOAD}\n\
             # A site that vanished is noticed after a minute, and its place is free again.\n\
             ping_interval: \"20s\"\n\
             ping_max: 2\n\
             jetstream {{\n  store_dir: \"jetstream\"\n  max_file_store: {store}\n  max_memory_store: 0\n  \
             # Without this line the broker acknowledges updates that a power cut can still lose.\n  \
             sync_interval: always\n}}\n\
             tls {{\n  cert_file: \"broker.pem\"\n  key_file: \"broker.key\"\n  ca_file: \"ca.pem\"\n  \
             verify_and_map: true\n  timeout: 10\n}}\n\
             accounts {{\n  {COORDINATOR_ACCOUNT} {{\n    jetstream: enabled\n    \
             users: [{{ user: \"CN={COORDINATOR}\" }}]\n    exports: [\n{exports}    ]\n  }}\n{accounts}}}\n"
        )
    }
}
