//! How a run shows itself while it runs.

use std::path::Path;

use dpsgd_report::run::Measurement;

/// What a run is about to do.
#[derive(Clone, Copy, Debug)]
pub struct Outlook<'a> {
    /// The network.
    pub net: &'a str,
    /// The data.
    pub data: &'a str,
    /// Threads.
    pub threads: usize,
    /// Where everything is written.
    pub directory: &'a Path,
    /// The next round, counted from 0; above 0 for a run that is resumed.
    pub next: u64,
    /// T.
    pub rounds: u64,
    /// The epochs that T rounds are.
    pub epochs: f64,
    /// Why the guarantee does not hold, if so.
    pub note: Option<&'a str>,
}

/// Watches a run. Every method has an empty default.
pub trait Observer {
    /// Features of this many images are about to be computed, which can take a minute, or read from the
    /// directory that keeps them.
    fn computing_features(&mut self, _images: u64, _kept: Option<&Path>) {}

    /// Something about the data that their owner should know. It may depend on the private data, so it is not
    /// for publishing.
    fn warns(&mut self, _warning: &str) {}

    /// σ is about to be chosen for this ε, which can take minutes.
    fn calibrating(&mut self, _epsilon: f64) {}

    /// Training begins.
    fn begins(&mut self, _outlook: &Outlook<'_>) {}

    /// The rounds before `next` are done.
    fn round(&mut self, _next: u64) {}

    /// An epoch was measured on the public test set.
    fn measured(&mut self, _measurement: &Measurement) {}

    /// Whether to stop: asked after every round. A run that stops saves its state and can be resumed; the
    /// rounds it has charged stay charged.
    fn wants_to_stop(&mut self) -> bool {
        false
    }

    /// Whether to end the run here for good: asked after every round, and once per epoch after it was
    /// measured. The run is measured, states what its charged rounds leak, writes its results and is closed.
    /// The answer may depend on public and noised values only.
    fn wants_to_end(&mut self) -> bool {
        false
    }

    /// Training has ended.
    fn ends(&mut self) {}
}

/// Watches nothing.
impl Observer for () {}
