//! How a run shows itself while it runs, on standard error: a bar on a terminal, a line an epoch
//! elsewhere.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::metrics::Epoch;
use crate::rounding::up;
use crate::settings::number;

/// The progress of one run.
pub struct Progress {
    shown: Shown,
    epochs: f64,
    private: bool,
}

enum Shown {
    Bar(ProgressBar),
    Lines,
    Nothing,
}

impl Progress {
    /// For a run of so many rounds and epochs, of which some are done.
    /// `note` says why the guarantee does not hold, if so.
    pub fn new(rounds: (u64, u64), epochs: f64, note: Option<&str>, quiet: bool) -> Self {
        let (done, all) = rounds;
        let shown = if quiet {
            Shown::Nothing
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new(all).with_position(done);
            // The template is a constant that was tried; a default bar is as true.
            let style = ProgressStyle::with_template("{prefix} {bar:20.cyan/dim} {msg} · {eta} left")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style.progress_chars("━━─"));
            bar.enable_steady_tick(Duration::from_millis(200));
            bar.reset_eta();
            bar.set_message("starting");
            Shown::Bar(bar)
        } else {
            Shown::Lines
        };
        let progress = Self { shown, epochs, private: note.is_none() };
        progress.name(0.0);
        if let Some(note) = note {
            progress.say(&format!("this run is {note}"));
        }
        progress
    }

    fn name(&self, epoch: f64) {
        if let Shown::Bar(bar) = &self.shown {
            let mark = if self.private { "" } else { "NOT PRIVATE " };
            bar.set_prefix(format!("{mark}epoch {}/{}", short(epoch), short(self.epochs)));
        }
    }

    /// So many rounds are done.
    pub fn rounds(&self, done: u64) {
        if let Shown::Bar(bar) = &self.shown {
            bar.set_position(done);
        }
    }

    /// An epoch is done and evaluated.
    pub fn epoch(&self, epoch: &Epoch) {
        self.name(epoch.epoch);
        let accuracy = match epoch.test_accuracy {
            Some(accuracy) => format!(" · accuracy {:.2} %", 100.0 * accuracy),
            None => String::new(),
        };
        let said = format!(
            "loss {:.4}{accuracy} · ε ≤ {}{}",
            epoch.test_loss,
            up(epoch.epsilon, 4),
            epoch
                .samples_per_s
                .map(|speed| format!(" · {} samples/s", thousands(speed as u64)))
                .unwrap_or_default()
        );
        match &self.shown {
            Shown::Bar(bar) => bar.set_message(said),
            Shown::Lines => {
                let mark = epoch.note.as_ref().map(|note| format!(" · {note}")).unwrap_or_default();
                let left = remaining(epoch, self.epochs);
                self.say(&format!(
                    "epoch {}/{} · {said}{left}{mark}",
                    short(epoch.epoch),
                    short(self.epochs)
                ));
            }
            Shown::Nothing => {}
        }
    }

    /// A line that stays.
    pub fn say(&self, line: &str) {
        match &self.shown {
            Shown::Bar(bar) => bar.suspend(|| tell(line)),
            Shown::Lines => tell(line),
            Shown::Nothing => {}
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

/// Writes a line to standard error; nothing is left to be done if that is closed.
pub fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn remaining(epoch: &Epoch, epochs: f64) -> String {
    let left = epoch.seconds.unwrap_or(0.0) * (epochs / epoch.epoch - 1.0);
    if left.is_finite() && left > 0.5 { format!(" · {} left", duration(left)) } else { String::new() }
}

/// At most two decimals.
fn short(value: f64) -> String {
    number((100.0 * value).round() / 100.0)
}

/// A number with thin groups of three digits.
pub fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// A duration for people.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!((thousands(7), thousands(1_234_567)), ("7".into(), "1\u{202f}234\u{202f}567".into()));
        assert_eq!((duration(59.4), duration(61.0)), ("59 s".into(), "1 min 1 s".into()));
        assert_eq!(duration(7261.0), "2 h 1 min");
        assert_eq!((short(3.0), short(1.0 / 3.0)), ("3".into(), "0.33".into()));
    }
}
