//! How a grid of experiments shows itself while it runs, on standard error: bars on a terminal, a line for each
//! experiment elsewhere.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

use dpsgd_data::Known;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::experiment::Experiment;
use crate::train::progress::{duration, tell};

/// Work that is planned: a part of the grid, so many samples of a data set.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Which data, and so which network.
    pub data: Known,
    /// Samples, each as often as it is used.
    pub samples: u64,
}

impl Work {
    /// Of so many epochs of an experiment.
    pub fn of(experiment: &Experiment, epochs: u64) -> Self {
        Self { data: experiment.data(), samples: epochs * experiment.samples() }
    }
}

/// The progress of a grid.
pub struct Progress {
    shown: Shown,
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

enum Shown {
    Bars { grid: ProgressBar, cell: ProgressBar },
    Lines,
    Nothing,
}

/// Seconds a sample takes until that has been measured, on two cores of 2020.
fn usual(data: &str) -> f64 {
    if data == Known::Cifar10.name() { 1.0 / 2_200.0 } else { 1.0 / 25_000.0 }
}

impl Progress {
    /// Of a grid of which nothing is known yet.
    pub fn new(quiet: bool) -> Self {
        let shown = if quiet {
            Shown::Nothing
        } else if std::io::stderr().is_terminal() {
            let bars = MultiProgress::new();
            let bar = |template: &str| {
                let bar = bars.add(ProgressBar::new(0));
                // The templates are constants that were tried; a default bar is as true.
                let style =
                    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
                bar.set_style(style.progress_chars("━━─"));
                bar.enable_steady_tick(Duration::from_millis(200));
                bar
            };
            Shown::Bars {
                grid: bar("{prefix} {bar:30.cyan/dim} {percent} % · {msg}"),
                cell: bar("{prefix} {bar:30.green/dim} epoch {pos}/{len} · {msg}"),
            }
        } else {
            Shown::Lines
        };
        Self { shown, left: BTreeMap::new(), done: BTreeMap::new(), planned: 0.0, now: None }
    }

    /// A new part of the grid: its name and everything in it.
    pub fn plan(&mut self, name: &str, work: &[Work]) {
        self.left.clear();
        for work in work {
            *self.left.entry(work.data.name()).or_default() += work.samples as f64;
        }
        self.planned = self.seconds_left();
        if let Shown::Bars { grid, .. } = &self.shown {
            grid.set_length(1000);
            grid.set_position(0);
            grid.set_prefix(name.to_string());
        }
        self.say(&format!("{name}: at most about {}", duration(self.planned)));
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
        if let Shown::Bars { grid, .. } = &self.shown {
            grid.set_position((1000.0 * (1.0 - left / self.planned.max(1e-9))).clamp(0.0, 1000.0) as u64);
            grid.set_message(format!("{} left", duration(left)));
        }
    }

    /// An experiment begins, or goes on.
    pub fn start(&mut self, name: &str, from: u64, epochs: u64, (samples, data): (u64, Known)) {
        if let Shown::Bars { cell, .. } = &self.shown {
            cell.set_length(epochs);
            cell.set_position(from);
            cell.set_prefix(name.to_string());
            cell.set_message("");
        }
        self.now = Some(Now { name: name.to_string(), epochs, samples, data });
        self.spent(data, (from * samples) as f64);
    }

    /// An epoch of it is done.
    pub fn epoch(&mut self, done: u64, accuracy: f64, seconds: f64) {
        let Some(Now { name, epochs, samples, data }) = &self.now else { return };
        let (data, samples, last) = (*data, *samples as f64, done == *epochs);
        let line = format!("{name}: {:.2} % after {done} epochs", 100.0 * accuracy);
        let so_far = self.done.entry(data.name()).or_default();
        *so_far = (so_far.0 + samples, so_far.1 + seconds);
        self.spent(data, samples);
        match &self.shown {
            Shown::Bars { cell, .. } => {
                cell.set_position(done);
                cell.set_message(format!("accuracy {:.2} %", 100.0 * accuracy));
            }
            Shown::Lines if last => tell(&format!("{line}, {} left", duration(self.seconds_left()))),
            _ => {}
        }
        if last && matches!(self.shown, Shown::Bars { .. }) {
            self.say(&line);
        }
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

    /// A line that stays.
    pub fn say(&self, line: &str) {
        match &self.shown {
            Shown::Bars { grid, .. } => grid.suspend(|| tell(line)),
            Shown::Lines => tell(line),
            Shown::Nothing => {}
        }
    }

    /// Takes the bars away.
    pub fn finish(&self) {
        if let Shown::Bars { grid, cell } = &self.shown {
            cell.finish_and_clear();
            grid.finish_and_clear();
        }
    }
}
