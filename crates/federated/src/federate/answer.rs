//! What a simulated federation found: JSON, a statement, and the files of `--out`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::sync::Arc;

use dpsgd::privacy::adversary::composed;
use dpsgd::privacy::mechanism::RunConfig;
use dpsgd::privacy::{Account, Adversary};
use dpsgd::report::rounding::up;
use dpsgd::report::text::{number, subscript, thousands};
use dpsgd::report::{Sizes, json};
use dpsgd::{Error, Settings};
use serde_json::{Map, Value, json};

use super::{Federation, page};
use crate::simulate::{ClientOutcome, Finished};
use crate::timeline::Measured;

/// Client pages that are written at most.
const MOST_PAGES: usize = 100;

/// What a simulated federation found.
pub struct Answer {
    pub(super) federation: Federation,
    pub(super) finished: Finished,
    pub(super) measured: Vec<Measured>,
    /// The account of each client, shared by those with the same mechanism and as many charged rounds.
    pub(super) accounts: Vec<Arc<Account>>,
}

impl Answer {
    pub(super) fn new(
        federation: Federation,
        finished: Finished,
        measured: Vec<Measured>,
    ) -> Result<Self, Error> {
        let mut known: HashMap<(usize, u64), Arc<Account>> = HashMap::new();
        let mut accounts = Vec::new();
        for (settings, client) in federation.settings.iter().zip(&finished.clients) {
            let name = (Arc::as_ptr(settings) as usize, client.charged);
            let account = match known.entry(name) {
                Entry::Occupied(known) => known.get().clone(),
                Entry::Vacant(place) => place.insert(Arc::new(settings.account_of(client.charged)?)).clone(),
            };
            accounts.push(account);
        }
        Ok(Self { federation, finished, measured, accounts })
    }

    /// The weights of the global model.
    pub fn weights(&self) -> &[f32] {
        &self.finished.state.weights
    }

    /// What was found about each client.
    pub fn clients(&self) -> &[ClientOutcome] {
        &self.finished.clients
    }

    /// The last measurement.
    pub fn last(&self) -> Option<&Measured> {
        self.measured.last()
    }

    /// The largest ε of a client, in the adversary of its settings.
    pub fn worst_epsilon(&self) -> f64 {
        let of = |(settings, account): (&Arc<Settings>, &Arc<Account>)| {
            account.against(settings.budget.adversary).map(|given| given.answer.upper)
        };
        let all = self.federation.settings.iter().zip(&self.accounts).filter_map(of);
        all.fold(0.0, f64::max)
    }

    /// ε of a person with records at several clients: (client from 1, number of its records).
    ///
    /// # Guarantee
    /// The composition of those clients' mechanisms, each for that person's number of records, for the rounds
    /// that were charged ([`composed`]). Clients are disjoint for everybody else, whose ε is that of the one
    /// client that has their record.
    pub fn person(&self, records: &[(usize, u64)]) -> Result<f64, Error> {
        let mut runs = Vec::new();
        for &(client, differing) in records {
            let Some(account) = client.checked_sub(1).and_then(|i| self.accounts.get(i)) else {
                return Err(Error::Refused(format!("client = {client}: there are {}", self.accounts.len())));
            };
            runs.push(RunConfig { differing, ..account.mechanism.config() }.check()?);
        }
        let budget = self.federation.settings[0].budget;
        Ok(composed(&runs, budget.adversary)?.epsilon(budget.delta)?.upper)
    }

    /// One JSON object.
    pub fn json(&self) -> Value {
        let state = &self.finished.state;
        let rejected: Map<String, Value> =
            state.rejected().iter().map(|(reason, count)| (reason.name().into(), json!(count))).collect();
        let total = |of: &dyn Fn(&ClientOutcome) -> f64| self.finished.clients.iter().map(of).sum::<f64>();
        let computing = total(&|client| client.computing);
        let clients: Vec<Value> = (0..self.finished.clients.len()).map(|i| self.client(i)).collect();
        json!({
            "global": {
                "test_accuracy": self.last().and_then(|last| last.accuracy),
                "version": state.version,
                "updates_applied": state.accepted(),
                "updates_rejected": rejected,
            },
            "clients": clients,
            "staleness": {
                "mean": state.mean_staleness(),
                "p99": state.staleness_quantile(0.99),
            },
            "virtual_seconds": self.finished.seconds,
            "discarded_work": total(&|client| client.discarded) / computing.max(1e-12),
            "timeline": self.measured.iter().map(|at| json!({
                "virtual_seconds": at.seconds,
                "version": at.version,
                "updates": at.updates,
                "test_accuracy": at.accuracy,
            })).collect::<Vec<_>>(),
            "seed": self.federation.seed,
            "private": false,
        })
    }

    fn client(&self, i: usize) -> Value {
        let (outcome, settings) = (&self.finished.clients[i], &self.federation.settings[i]);
        let sizes = Sizes { samples: settings.samples, groups: settings.groups };
        let mut account = json::account(&self.accounts[i], sizes, &settings.alphas);
        json!({
            "id": i + 1,
            "rounds": outcome.charged,
            "updates_sent": outcome.sent,
            "interrupts": outcome.interrupts,
            "guarantees": account["guarantees"].take(),
        })
    }

    /// For people.
    pub fn statement(&self) -> String {
        let state = &self.finished.state;
        let mut text = String::new();
        let mut line = |said: String| {
            text.push_str(&said);
            text.push('\n');
        };
        let accuracy = self.last().and_then(|last| last.accuracy);
        let accuracy =
            accuracy.map_or(String::new(), |share| format!("test accuracy {:.2} %, ", 100.0 * share));
        line(format!(
            "{} clients ({}): {accuracy}version {} after {} updates, {} virtual seconds",
            thousands(self.finished.clients.len() as u64),
            self.federation.split,
            thousands(state.version),
            thousands(state.accepted()),
            number((self.finished.seconds * 10.0).round() / 10.0),
        ));
        let rejected: Vec<String> =
            state.rejected().iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        let rejected = if rejected.is_empty() { "none".into() } else { rejected.join(", ") };
        line(format!(
            "staleness {:.2} on average, {} at most for 99 %; rejected: {rejected}",
            state.mean_staleness().unwrap_or(0.0),
            state.staleness_quantile(0.99).unwrap_or(0),
        ));
        let budget = self.federation.settings[0].budget;
        line(format!(
            "each client, against the server, the network and all other clients: ε ≤ {} at δ = {} ({})",
            up(self.worst_epsilon(), 4),
            number(budget.delta),
            subscript(budget.adversary),
        ));
        if let Some(epsilon) =
            (self.accounts.len() > 1).then(|| self.person(&[(1, 1), (2, 1)]).ok()).flatten()
        {
            line(format!(
                "somebody with a record at two clients (1 and 2): ε ≤ {} at δ = {}",
                up(epsilon, 4),
                number(budget.delta)
            ));
        }
        line(format!("seed {}: reproducible, NOT private", self.federation.seed));
        text
    }

    /// Writes `summary.json`, `report.html`, `model.safetensors` and a page for each of the first clients.
    pub fn write(&self, directory: &Path) -> Result<(), Error> {
        let io = |source| Error::Io { path: directory.to_owned(), source };
        let clients = directory.join("clients");
        std::fs::create_dir_all(&clients).map_err(io)?;
        let write = |path: &Path, bytes: &[u8]| std::fs::write(path, bytes).map_err(io);
        write(&directory.join("summary.json"), json::line(&self.json()).as_bytes())?;
        write(&directory.join("report.html"), page::coordinator(self).as_bytes())?;
        let texts = HashMap::from([("federated".to_string(), self.statement())]);
        let model = self.federation.test.network.to_safetensors(self.weights(), texts);
        let model = model.map_err(|error| Error::Refused(error.to_string()))?;
        write(&directory.join("model.safetensors"), &model)?;
        for i in 0..self.accounts.len().min(MOST_PAGES) {
            let page = page::client(self, i)?;
            write(&clients.join(format!("client-{}.html", i + 1)), page.as_bytes())?;
        }
        Ok(())
    }

    /// Against whom the clients state their ε.
    pub(super) fn adversary(&self) -> Adversary {
        self.federation.settings[0].budget.adversary
    }
}
