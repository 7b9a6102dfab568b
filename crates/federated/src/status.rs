//! How a coordinator stands, for people: what the terminal, the page and the summary show.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use dpsgd::report::text::thousands;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::state::State;
use crate::terms::Agreed;

/// The most clients that are shown one by one on a terminal.
const ON_A_TERMINAL: usize = 20;
/// The most clients that a status lists.
const LISTED: usize = 10_000;
/// Points of the distribution of staleness.
const POINTS: usize = 200;

/// Seconds since 1970.
pub fn now() -> u64 {
    clock() as u64
}

/// Seconds since 1970, and parts of a second.
pub fn clock() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// How a coordinator stands. Everything in it is computed from noised updates, public numbers and the
/// coordinator's own clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The run, 32 hexadecimal digits.
    pub run: String,
    /// The name in the terms.
    pub name: String,
    /// The broker.
    pub broker: String,
    /// Whether the broker answers.
    pub connected: bool,
    /// When this was so, in seconds since 1970.
    pub at: f64,
    /// Whether the coordinator has ended.
    pub ended: bool,
    /// Clients of the terms.
    pub clients: u64,
    /// Steps of the global model.
    pub version: u64,
    /// The last entry of the log that was read.
    pub sequence: u64,
    /// Updates folded.
    pub updates_applied: u64,
    /// Updates rejected, by reason.
    pub updates_rejected: BTreeMap<String, u64>,
    /// Updates folded a second, lately.
    pub rate: f64,
    /// How stale the folded updates were.
    pub staleness: StalenessSeen,
    /// The newest model that was measured on the public test set.
    pub measured: Option<Found>,
    /// The clients that were heard of, the first ten thousand.
    pub members: Vec<Member>,
}

/// How stale the folded updates were, in versions of the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StalenessSeen {
    /// Their mean.
    pub mean: Option<f64>,
    /// 99 % are at most this.
    pub p99: Option<u64>,
    /// Which share (0 to 1) was at most so stale; at most two hundred points.
    pub shares: Vec<(u64, f64)>,
}

/// A version of the model on the public test set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// The version.
    pub version: u64,
    /// Its loss.
    pub loss: f64,
    /// Its accuracy; none for regression.
    pub accuracy: Option<f64>,
}

/// A client, as the coordinator knows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Its number.
    pub id: u64,
    /// One past its highest folded round.
    pub round: u64,
    /// Its updates that were folded.
    pub applied: u64,
    /// Its updates that were rejected, by reason.
    pub rejected: BTreeMap<String, u64>,
    /// When it was last heard by this process, in seconds since 1970.
    pub heard: Option<u64>,
}

fn named(rejected: &BTreeMap<crate::Reject, u64>) -> BTreeMap<String, u64> {
    rejected.iter().map(|(why, count)| (why.name().to_string(), *count)).collect()
}

fn counted(rejected: &BTreeMap<String, u64>) -> String {
    let each: Vec<String> = rejected.iter().map(|(why, count)| format!("{count} {why}")).collect();
    each.join(", ")
}

impl StalenessSeen {
    fn of(state: &State) -> Self {
        let total: u64 = state.staleness.values().sum();
        let mut seen = 0;
        let all: Vec<(u64, f64)> = state
            .staleness
            .iter()
            .map(|(&staleness, &count)| {
                seen += count;
                (staleness, seen as f64 / total.max(1) as f64)
            })
            .collect();
        let step = all.len().div_ceil(POINTS).max(1);
        let last = all.len().saturating_sub(1);
        let kept = all.iter().enumerate().filter(|(i, _)| i % step == 0 || *i == last);
        let shares = kept.map(|(_, point)| *point).collect();
        Self { mean: state.mean_staleness(), p99: state.staleness_quantile(0.99), shares }
    }
}

impl Status {
    /// Of a coordinator in this state.
    pub fn of(terms: &Agreed, state: &State) -> Self {
        let members = state.clients.iter().take(LISTED).map(|(id, standing)| Member {
            id: id.0,
            round: standing.window.next,
            applied: standing.accepted,
            rejected: named(&standing.rejected),
            heard: None,
        });
        Self {
            run: terms.run().to_string(),
            name: terms.name.clone(),
            at: clock(),
            clients: terms.clients,
            version: state.version,
            sequence: state.sequence,
            updates_applied: state.accepted(),
            updates_rejected: named(&state.rejected()),
            staleness: StalenessSeen::of(state),
            members: members.collect(),
            ..Self::default()
        }
    }

    /// Updates rejected for any reason.
    pub fn rejected(&self) -> u64 {
        self.updates_rejected.values().sum()
    }

    /// One line.
    pub fn headline(&self) -> String {
        let mut text = format!(
            "version {} · {} updates · {:.1}/s · {} of {} clients",
            thousands(self.version),
            thousands(self.updates_applied),
            self.rate,
            self.members.len(),
            self.clients
        );
        if let (Some(mean), Some(p99)) = (self.staleness.mean, self.staleness.p99) {
            text.push_str(&format!(" · staleness {mean:.1}, p99 {p99}"));
        }
        if !self.updates_rejected.is_empty() {
            text.push_str(&format!(" · rejected {}", counted(&self.updates_rejected)));
        }
        if let Some(Found { version, loss, accuracy }) = self.measured {
            let accuracy = accuracy.map(|share| format!(", {:.2} % right", 100.0 * share));
            text.push_str(&format!(" · version {version}: loss {loss:.4}{}", accuracy.unwrap_or_default()));
        }
        text
    }

    /// A line, and one for each of the first clients.
    pub fn board(&self) -> String {
        let mut text = self.headline();
        for member in self.members.iter().take(ON_A_TERMINAL) {
            let ago =
                member.heard.map(|heard| format!(" · {} s ago", (self.at as u64).saturating_sub(heard)));
            let rejected = match member.rejected.is_empty() {
                true => String::new(),
                false => format!(" · rejected {}", counted(&member.rejected)),
            };
            text.push_str(&format!(
                "\n  client {}: round {} · {} updates{rejected}{}",
                member.id,
                thousands(member.round),
                thousands(member.applied),
                ago.unwrap_or_default()
            ));
        }
        let more = self.members.len().saturating_sub(ON_A_TERMINAL);
        if more > 0 {
            text.push_str(&format!("\n  and {more} more"));
        }
        text
    }

    /// The summary, in the form of `dpsgd federate --json`.
    pub fn summary(&self) -> Value {
        let clients: Vec<Value> = self
            .members
            .iter()
            .map(|member| {
                json!({
                    "id": member.id,
                    "updates_applied": member.applied,
                    "updates_rejected": member.rejected,
                })
            })
            .collect();
        json!({
            "global": {
                "test_accuracy": self.measured.and_then(|found| found.accuracy),
                "test_loss": self.measured.map(|found| found.loss),
                "version": self.version,
                "updates_applied": self.updates_applied,
                "updates_rejected": self.updates_rejected,
            },
            "clients": clients,
            "staleness": { "mean": self.staleness.mean, "p99": self.staleness.p99 },
        })
    }

    /// What was reached, in a few lines.
    pub fn statement(&self) -> String {
        let mut text = format!(
            "version {}: {} updates folded of {} clients",
            thousands(self.version),
            thousands(self.updates_applied),
            self.members.len()
        );
        if !self.updates_rejected.is_empty() {
            text.push_str(&format!(", rejected {}", counted(&self.updates_rejected)));
        }
        if let (Some(mean), Some(p99)) = (self.staleness.mean, self.staleness.p99) {
            text.push_str(&format!("\nstaleness {mean:.2} on average, {p99} at most for 99 %"));
        }
        if let Some(accuracy) = self.measured.and_then(|found| found.accuracy) {
            text.push_str(&format!("\n{:.2} % of the public test set right", 100.0 * accuracy));
        }
        text.push('\n');
        text
    }
}
