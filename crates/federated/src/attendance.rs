//! How a client stands, for its own people: what the terminal and the page show. Nothing of it is sent.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use dpsgd::report::text::thousands;
use serde::{Deserialize, Serialize};

use crate::chronicle::replace;
use crate::status::now;

/// The file in the directory of a client's run.
pub const FILE: &str = "federation.json";
/// Seconds after which a coordinator that says nothing is missed.
const MISSED: u64 = 5;

/// How a client stands.
///
/// # Guarantee
/// It is written to the client's own disk and shown on its own screen. The counts of restarts and of work
/// that was given up follow computing times, so this file is **not** for publishing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attendance {
    /// The run, 32 hexadecimal digits.
    pub run: String,
    /// The client's number.
    pub client: u64,
    /// When this was so, in seconds since 1970.
    pub at: u64,
    /// Whether the client has ended, with all its rounds done or not.
    pub ended: bool,
    /// Whether the broker can be reached.
    pub connected: bool,
    /// When the coordinator was last heard of, in seconds since 1970.
    pub heard: Option<u64>,
    /// The newest model's version.
    pub version: u64,
    /// Rounds that are done.
    pub round: u64,
    /// Rounds of the plan.
    pub rounds: u64,
    /// Updates that are in the log; by this process.
    pub sent: u64,
    /// Updates in the log that are not folded yet.
    pub unfolded: u64,
    /// Updates that the coordinator rejected, by reason; over the whole run.
    pub rejected: BTreeMap<String, u64>,
    /// Models that replaced w.
    pub models: u64,
    /// Models that were refused: damaged, of another run, or not finite.
    pub refused_models: u64,
    /// Rounds that a new model began again.
    pub restarts: u64,
    /// The share of computing time that such rounds had spent before.
    pub discarded: f64,
    /// ε of the rounds so far, rounded up, once it was computed.
    pub epsilon: Option<String>,
}

impl Attendance {
    /// One line, without the rounds and ε.
    pub fn line(&self) -> String {
        let mut text = format!("model {} · {} sent", thousands(self.version), thousands(self.sent));
        if self.unfolded > 0 {
            text.push_str(&format!(" · {} under way", self.unfolded));
        }
        if !self.rejected.is_empty() {
            let each: Vec<String> =
                self.rejected.iter().map(|(why, count)| format!("{count} {why}")).collect();
            text.push_str(&format!(" · rejected {}", each.join(", ")));
        }
        if self.restarts > 0 {
            text.push_str(&format!(" · {} restarts", thousands(self.restarts)));
        }
        if self.refused_models > 0 {
            text.push_str(&format!(" · {} models refused", self.refused_models));
        }
        if !self.connected {
            text.push_str(" · NO CONNECTION, trying again");
        } else if self.heard.is_none_or(|heard| self.at.saturating_sub(heard) > MISSED) {
            text.push_str(" · no word from the coordinator, waiting");
        }
        text
    }

    /// What was interrupted, at the end.
    pub fn interrupts(&self) -> String {
        let mut text = format!("{} models replaced w", thousands(self.models));
        if self.restarts > 0 {
            text.push_str(&format!(
                "; {} rounds were begun again, which threw away {:.1} % of the computing time",
                thousands(self.restarts),
                100.0 * self.discarded
            ));
        }
        text
    }

    /// Writes it into the directory of the run.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        replace(&directory.join(FILE), &serde_json::to_vec(self)?)
    }

    /// Reads it; `None` for a run that is not a client's.
    pub fn read(directory: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(directory.join(FILE)).ok()?).ok()
    }

    /// The same, now.
    pub fn now(self) -> Self {
        Self { at: now(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_wrong() {
        let well =
            Attendance { at: 100, heard: Some(99), connected: true, version: 1234, ..Attendance::default() };
        assert_eq!(well.line(), "model 1\u{202f}234 · 0 sent");
        let alone = Attendance { heard: Some(90), ..well.clone() };
        assert!(alone.line().ends_with("no word from the coordinator, waiting"));
        let cut = Attendance { connected: false, rejected: [("norm".into(), 3)].into(), ..well.clone() };
        assert!(cut.line().contains("rejected 3 norm") && cut.line().contains("NO CONNECTION"));
        let folder = tempfile::tempdir().unwrap();
        assert!(Attendance::read(folder.path()).is_none());
        cut.write(folder.path()).unwrap();
        assert_eq!(Attendance::read(folder.path()), Some(cut));
    }
}
