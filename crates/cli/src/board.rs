//! A federation while it runs, on standard error: a few lines that change on a terminal, lines that stay
//! elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use dpsgd::Outlook;
use dpsgd::report::rounding::up;
use dpsgd::report::run::Measurement;
use dpsgd_federated::attendance::Attendance;
use dpsgd_federated::status::Status;
use dpsgd_federated::{joining, serving};
use indicatif::ProgressBar;

use crate::terminal::{short, stopped, styled, tell};

/// How often a line is written where there is no terminal.
const WRITTEN: Duration = Duration::from_secs(10);

enum Shown {
    Terminal(ProgressBar),
    Lines(Option<Instant>),
    Nothing,
}

impl Shown {
    fn new(quiet: bool, template: &str) -> Self {
        match (quiet, std::io::stderr().is_terminal()) {
            (true, _) => Shown::Nothing,
            (false, true) => Shown::Terminal(styled(ProgressBar::new(0), template)),
            (false, false) => Shown::Lines(None),
        }
    }

    fn say(&self, line: &str) {
        match self {
            Shown::Terminal(bar) => bar.suspend(|| tell(line)),
            Shown::Lines(_) => tell(line),
            Shown::Nothing => {}
        }
    }

    /// The text of the moment: on a terminal always, elsewhere now and then.
    fn show(&mut self, terminal: impl FnOnce() -> String, line: impl FnOnce() -> String) {
        match self {
            Shown::Terminal(bar) => bar.set_message(terminal()),
            Shown::Lines(last) if last.is_none_or(|last| last.elapsed() >= WRITTEN) => {
                *last = Some(Instant::now());
                tell(&line());
            }
            Shown::Lines(_) | Shown::Nothing => {}
        }
    }

    fn end(&self) {
        if let Shown::Terminal(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// The board of a coordinator.
pub struct ServeBoard(Shown);

impl ServeBoard {
    /// For whatever standard error is.
    pub fn new(quiet: bool) -> Self {
        Self(Shown::new(quiet, "{msg}"))
    }

    /// Clears the board.
    pub fn end(&self) {
        self.0.end();
    }
}

impl serving::Watcher for ServeBoard {
    fn says(&mut self, line: &str) {
        self.0.say(line);
    }

    fn shows(&mut self, status: &Status) {
        self.0.show(|| status.board(), || status.headline());
    }

    fn wants_to_stop(&mut self) -> bool {
        stopped()
    }
}

/// The board of a client.
pub struct JoinBoard(Shown);

impl JoinBoard {
    /// For whatever standard error is.
    pub fn new(quiet: bool) -> Self {
        Self(Shown::new(quiet, "{prefix}{wide_bar:.cyan/dim} {pos}/{len}\n{msg}"))
    }

    /// Clears the board.
    pub fn end(&self) {
        self.0.end();
    }
}

/// What was measured last, after what the client knows.
fn with_measured(attendance: &Attendance, measured: Option<&Measurement>) -> String {
    let Some(seen) = measured else { return attendance.line() };
    let accuracy = seen.test_accuracy.map(|share| format!(", {:.2} % right", 100.0 * share));
    format!(
        "{} · epoch {}: loss {:.4}{} · ε ≤ {}",
        attendance.line(),
        short(seen.epoch),
        seen.test_loss,
        accuracy.unwrap_or_default(),
        up(seen.epsilon, 4)
    )
}

impl joining::Watcher for JoinBoard {
    fn says(&mut self, line: &str) {
        self.0.say(line);
    }

    fn warns(&mut self, line: &str) {
        // Also where no progress is shown: it is about privacy.
        match &self.0 {
            Shown::Nothing => tell(&format!("warning: {line}")),
            shown => shown.say(&format!("warning: {line}")),
        }
    }

    fn begins(&mut self, outlook: &Outlook<'_>) {
        if let Shown::Terminal(bar) = &self.0 {
            bar.set_length(outlook.rounds);
            bar.set_prefix("round ");
        }
        if let Some(note) = outlook.note {
            self.says(&format!("this run is {note}"));
        }
        let (net, data, into) = (outlook.net, outlook.data, outlook.directory.display());
        self.says(&format!("training {net} on {data}, into {into}, from round {}", outlook.next));
    }

    fn shows(&mut self, attendance: &Attendance, measured: Option<&Measurement>) {
        if let Shown::Terminal(bar) = &self.0 {
            bar.set_position(attendance.round);
        }
        let (round, rounds) = (attendance.round, attendance.rounds);
        let text = || with_measured(attendance, measured);
        self.0.show(text, || format!("round {round}/{rounds} · {}", text()));
    }

    fn wants_to_stop(&mut self) -> bool {
        stopped()
    }
}
