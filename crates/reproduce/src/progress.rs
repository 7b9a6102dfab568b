//! How far a grid of experiments is, and how long it still takes.

use std::collections::BTreeMap;

use dpsgd_data::Known;

use crate::experiment::Experiment;

/// Watches a reproduction. Every method may be left out.
pub trait Watch {
    /// A part of the grid begins; it takes at most about this many seconds, less if some of it was computed
    /// before.
    fn part(&mut self, name: &str, seconds: f64) {
        let _ = (name, seconds);
    }

    /// The share of the part that is done, between 0 and 1, and the seconds that are left.
    fn advanced(&mut self, share: f64, seconds_left: f64) {
        let _ = (share, seconds_left);
    }

    /// An experiment starts or resumes after `done` of its `epochs`.
    fn experiment(&mut self, name: &str, done: u64, epochs: u64) {
        let _ = (name, done, epochs);
    }

    /// An epoch of an experiment is done.
    fn epoch(&mut self, epoch: &EpochDone<'_>) {
        let _ = epoch;
    }

    /// A remark that should stay visible.
    fn line(&mut self, line: &str) {
        let _ = line;
    }

    /// All experiments are done; bars may be taken away.
    fn finished(&mut self) {}
}

/// Watches nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Watch for Silent {}

/// An epoch of an experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct EpochDone<'a> {
    /// The name of the experiment.
    pub name: &'a str,
    /// The epochs done.
    pub done: u64,
    /// The epochs it is to reach.
    pub epochs: u64,
    /// The accuracy after this one, between 0 and 1.
    pub accuracy: f64,
    /// The seconds that are left of the part of the grid.
    pub seconds_left: f64,
}

/// Planned work: training on a number of samples of a data set.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Which data, and so which network.
    pub data: Known,
    /// Samples, each as often as it is used.
    pub samples: u64,
}

impl Work {
    /// The first epochs of an experiment.
    pub fn of(experiment: &Experiment, epochs: u64) -> Self {
        Self { data: experiment.data(), samples: epochs * experiment.samples() }
    }
}

/// The progress of a grid.
pub struct Progress<'w> {
    watch: &'w mut dyn Watch,
    /// Samples that are planned and not done, by data set.
    left: BTreeMap<&'static str, f64>,
    /// Samples and seconds of what was done here, by data set.
    done: BTreeMap<&'static str, (f64, f64)>,
    planned: f64,
    now: Option<Now>,
}

struct Now {
    name: String,
    epochs: u64,
    samples: u64,
    data: Known,
}

/// Seconds per sample until they have been measured, on two cores of 2020.
fn usual(data: &str) -> f64 {
    if data == Known::Cifar10.name() { 1.0 / 2_200.0 } else { 1.0 / 25_000.0 }
}

impl<'w> Progress<'w> {
    /// Before anything is planned.
    pub fn new(watch: &'w mut dyn Watch) -> Self {
        Self { watch, left: BTreeMap::new(), done: BTreeMap::new(), planned: 0.0, now: None }
    }

    /// A new part of the grid: its name and everything in it.
    pub fn plan(&mut self, name: &str, work: &[Work]) {
        self.left.clear();
        for work in work {
            *self.left.entry(work.data.name()).or_default() += work.samples as f64;
        }
        self.planned = self.seconds_left();
        self.watch.part(name, self.planned);
    }

    fn seconds_left(&self) -> f64 {
        let rate = |data: &str| match self.done.get(data) {
            Some((samples, seconds)) if *samples > 0.0 => seconds / samples,
            _ => usual(data),
        };
        self.left.iter().map(|(data, samples)| samples.max(0.0) * rate(data)).sum()
    }

    fn spent(&mut self, data: Known, samples: f64) {
        if let Some(left) = self.left.get_mut(data.name()) {
            *left -= samples;
        }
        let left = self.seconds_left();
        self.watch.advanced((1.0 - left / self.planned.max(1e-9)).clamp(0.0, 1.0), left);
    }

    /// An experiment starts or resumes.
    pub fn start(&mut self, name: &str, done: u64, epochs: u64, (samples, data): (u64, Known)) {
        self.watch.experiment(name, done, epochs);
        self.now = Some(Now { name: name.to_string(), epochs, samples, data });
        self.spent(data, (done * samples) as f64);
    }

    /// An epoch of it is done.
    pub fn epoch(&mut self, done: u64, accuracy: f64, seconds: f64) {
        let Some(now) = self.now.take() else { return };
        let samples = now.samples as f64;
        let so_far = self.done.entry(now.data.name()).or_default();
        *so_far = (so_far.0 + samples, so_far.1 + seconds);
        self.spent(now.data, samples);
        let seconds_left = self.seconds_left();
        let Now { name, epochs, .. } = &now;
        self.watch.epoch(&EpochDone { name, done, epochs: *epochs, accuracy, seconds_left });
        self.now = Some(now);
    }

    /// An experiment had been done before.
    pub fn done(&mut self, experiment: &Experiment, epochs: u64) {
        let work = Work::of(experiment, epochs);
        self.spent(work.data, work.samples as f64);
    }

    /// A choice of C had been made before.
    pub fn spent_on_tuning(&mut self, data: Known, samples: u64) {
        self.spent(data, samples as f64);
    }

    /// A remark that should stay visible.
    pub fn line(&mut self, line: &str) {
        self.watch.line(line);
    }

    /// All experiments are done.
    pub fn finish(&mut self) {
        self.watch.finished();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Clipping, paper};

    #[derive(Default)]
    struct Heard(Vec<String>);

    impl Watch for Heard {
        fn part(&mut self, name: &str, seconds: f64) {
            self.0.push(format!("{name} {seconds:.1}"));
        }
        fn advanced(&mut self, share: f64, seconds_left: f64) {
            self.0.push(format!("{share:.2} {seconds_left:.1}"));
        }
        fn epoch(&mut self, epoch: &EpochDone<'_>) {
            self.0.push(format!("{} {}/{} {}", epoch.name, epoch.done, epoch.epochs, epoch.accuracy));
        }
    }

    #[test]
    fn measured_epochs_replace_the_usual_rate() {
        use dpsgd_privacy::mechanism::SamplingKind;
        let experiment = paper(Known::Mnist, SamplingKind::Subsample, Clipping::Batch, 64, 1.0, 1);
        let mut heard = Heard::default();
        let mut progress = Progress::new(&mut heard);
        progress.plan("A part", &[Work::of(&experiment, 4)]);
        progress.start("one", 1, 4, (60_000, Known::Mnist));
        progress.epoch(2, 0.5, 6.0);
        progress.finish();
        assert_eq!(heard.0, ["A part 9.6", "0.25 7.2", "0.00 12.0", "one 2/4 0.5"]);
    }
}
