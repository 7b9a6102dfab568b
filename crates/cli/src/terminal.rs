//! How runs show themselves while they run, on standard error: bars on a terminal, lines elsewhere.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dpsgd::report::rounding::up;
use dpsgd::report::run::Measurement;
use dpsgd::report::text::{duration, number, thousands};
use dpsgd::{Observer, Outlook, RawSettings, Settings};
use dpsgd_reproduce::{EpochDone, Watch};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// Writes a line to standard error; nothing is left to be done if that is closed.
pub fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Says so if δ promises next to nothing.
pub fn warn_of_delta(settings: &Settings) {
    if let Some(warning) = settings.delta_warning() {
        tell(&format!("warning: {warning}"));
    }
}

/// A bar with a template that is a constant and was tried; a default bar is as true.
pub fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style.progress_chars("━━─"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// The progress of one training run.
pub struct Progress {
    shown: Shown,
    epochs: f64,
    private: bool,
}

enum Shown {
    /// A terminal, where the bar appears when training begins.
    Terminal(Option<ProgressBar>),
    Lines,
    Nothing,
}

impl Progress {
    /// For whatever standard error is.
    pub fn new(quiet: bool) -> Self {
        let shown = match (quiet, std::io::stderr().is_terminal()) {
            (true, _) => Shown::Nothing,
            (false, true) => Shown::Terminal(None),
            (false, false) => Shown::Lines,
        };
        Self { shown, epochs: 0.0, private: true }
    }

    fn name(&self, epoch: f64) {
        if let Shown::Terminal(Some(bar)) = &self.shown {
            let mark = if self.private { "" } else { "NOT PRIVATE " };
            bar.set_prefix(format!("{mark}epoch {}/{}", short(epoch), short(self.epochs)));
        }
    }

    /// Says that σ is about to be chosen, if it is.
    pub fn calibrating_for(&mut self, raw: &RawSettings) {
        if let Some(epsilon) = raw.target() {
            self.calibrating(epsilon);
        }
    }

    /// A bar over things that are counted, where there is a terminal.
    pub fn counts(&mut self, what: &str, length: u64) {
        if let Shown::Terminal(bar) = &mut self.shown {
            let template = format!("{{wide_bar:.cyan/dim}} {{pos}}/{{len}} {what} · {{eta}} left");
            *bar = Some(styled(ProgressBar::new(length), &template));
        }
    }

    /// A line that stays.
    fn say(&self, line: &str) {
        match &self.shown {
            Shown::Terminal(Some(bar)) => bar.suspend(|| tell(line)),
            Shown::Terminal(None) | Shown::Lines => tell(line),
            Shown::Nothing => {}
        }
    }
}

impl Observer for Progress {
    fn computing_features(&mut self, images: u64, kept: Option<&Path>) {
        if let Shown::Terminal(_) = self.shown {
            let kept = kept.map(|place| format!(", kept in {}", place.display())).unwrap_or_default();
            tell(&format!("features of {} images{kept} …", thousands(images)));
        }
    }

    fn warns(&mut self, warning: &str) {
        // Also where no progress is shown: it is about privacy.
        match &self.shown {
            Shown::Terminal(Some(bar)) => bar.suspend(|| tell(&format!("warning: {warning}"))),
            _ => tell(&format!("warning: {warning}")),
        }
    }

    fn calibrating(&mut self, epsilon: f64) {
        // Elsewhere what is refused after this is told in one line, and nothing before it.
        if let Shown::Terminal(_) = self.shown {
            tell(&format!("choosing the smallest σ for ε ≤ {} …", number(epsilon)));
        }
    }

    fn begins(&mut self, outlook: &Outlook<'_>) {
        (self.epochs, self.private) = (outlook.epochs, outlook.note.is_none());
        if let Shown::Terminal(bar) = &mut self.shown {
            let fresh = ProgressBar::new(outlook.rounds).with_position(outlook.next);
            // What does not fit is cut off at the right: the line never wraps. On 60 columns the accuracy fits.
            let columns = columns_of_stderr();
            let width = if columns < 100 { 6 } else { 16 };
            let template = format!("{{prefix}} {{bar:{width}.cyan/dim}} {{eta:>4}} left · {{wide_msg}}");
            let fresh = styled(fresh, &template);
            fresh.reset_eta();
            fresh.set_message("starting");
            *bar = Some(fresh);
        }
        self.name(outlook.epochs * outlook.next as f64 / outlook.rounds.max(1) as f64);
        if let Some(note) = outlook.note {
            self.say(&format!("this run is {note}"));
        }
        self.say(&format!(
            "training {} on {} with {} threads, into {}",
            outlook.net,
            outlook.data,
            outlook.threads,
            outlook.directory.display()
        ));
    }

    fn round(&mut self, next: u64) {
        if let Shown::Terminal(Some(bar)) = &self.shown {
            bar.set_position(next);
        }
    }

    fn measured(&mut self, seen: &Measurement) {
        self.name(seen.epoch);
        let accuracy = match seen.test_accuracy {
            Some(accuracy) => format!(" · accuracy {:.2} %", 100.0 * accuracy),
            None => String::new(),
        };
        let speed = seen.samples_per_s.map(|speed| format!(" · {} samples/s", thousands(speed as u64)));
        let auc = seen.two_classes.map(|two| format!(" · AUC {:.3}", two.auc)).unwrap_or_default();
        let loss = match seen.test_loss.is_nan() && seen.test_accuracy.is_none() {
            true => String::new(),
            // The loss last: it is the first to be cut off.
            false => format!("{accuracy}{auc} · loss {:.4}", seen.test_loss),
        };
        let said = format!("ε ≤ {}{loss}", up(seen.epsilon, 4));
        match &self.shown {
            Shown::Terminal(Some(bar)) => bar.set_message(said),
            Shown::Lines => {
                let mark = seen.note.as_ref().map(|note| format!(" · {note}")).unwrap_or_default();
                let (at, all) = (short(seen.epoch), short(self.epochs));
                let speed = speed.unwrap_or_default();
                self.say(&format!("epoch {at}/{all} · {said}{speed}{}{mark}", remaining(seen, self.epochs)));
            }
            Shown::Terminal(None) | Shown::Nothing => {}
        }
    }

    fn wants_to_stop(&mut self) -> bool {
        stopped()
    }

    fn ends(&mut self) {
        if let Shown::Terminal(Some(bar)) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

/// Whether Ctrl-C was pressed.
pub fn stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}

static STOP: AtomicBool = AtomicBool::new(false);

/// Lets Ctrl-C end a run after its current round; pressed again, it ends the process at once.
pub fn stop_politely() {
    let pressed = || {
        if STOP.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        // On a line of its own: the cursor is on that of the bar.
        let below = if std::io::stderr().is_terminal() { "\n" } else { "" };
        tell(&format!("{below}stopping after this round; press Ctrl-C again to stop at once"));
    };
    // Without a handler Ctrl-C ends the process at once, and the run resumes from its last checkpoint.
    let _ = ctrlc::set_handler(pressed);
}

/// The columns of the terminal; 80 where it does not say.
fn columns_of_stderr() -> usize {
    terminal_size::terminal_size_of(std::io::stderr()).map_or(80, |(width, _)| usize::from(width.0))
}

fn remaining(seen: &Measurement, epochs: f64) -> String {
    let left = seen.seconds.unwrap_or(0.0) * (epochs / seen.epoch - 1.0);
    if left.is_finite() && left > 0.5 { format!(" · {} left", duration(left)) } else { String::new() }
}

/// At most two decimals.
pub fn short(value: f64) -> String {
    format!("{}", (100.0 * value).round() / 100.0)
}

/// A bar over rounds, and nothing else.
pub struct Rounds(ProgressBar);

impl Rounds {
    /// With a name before the bar.
    pub fn new(name: &str, quiet: bool) -> Self {
        if quiet {
            return Self(ProgressBar::hidden());
        }
        let template = format!("{name} {{wide_bar:.cyan/dim}} {{pos}}/{{len}} · {{eta}} left");
        Self(styled(ProgressBar::new(0), &template))
    }
}

impl Observer for Rounds {
    fn begins(&mut self, outlook: &Outlook<'_>) {
        self.0.set_length(outlook.rounds);
    }

    fn round(&mut self, next: u64) {
        self.0.set_position(next);
    }

    fn ends(&mut self) {
        self.0.finish_and_clear();
    }
}

/// The progress of a grid of experiments.
pub enum Grid {
    /// A bar for the grid and one for the experiment.
    Bars(ProgressBar, ProgressBar),
    /// A line for each experiment.
    Lines,
    /// Nothing.
    Nothing,
}

impl Grid {
    /// For whatever standard error is.
    pub fn new(quiet: bool) -> Self {
        if quiet {
            return Grid::Nothing;
        }
        if !std::io::stderr().is_terminal() {
            return Grid::Lines;
        }
        let bars = MultiProgress::new();
        let bar = |template: &str| styled(bars.add(ProgressBar::new(0)), template);
        Grid::Bars(
            bar("{prefix} {bar:16.cyan/dim} {percent} % · {wide_msg}"),
            bar("{prefix} {bar:16.green/dim} epoch {pos}/{len} · {wide_msg}"),
        )
    }
}

impl Watch for Grid {
    fn part(&mut self, name: &str, seconds: f64) {
        if let Grid::Bars(grid, _) = self {
            grid.set_length(1000);
            grid.set_position(0);
            grid.set_prefix(name.to_string());
        }
        self.line(&format!("{name}: at most about {}", duration(seconds)));
    }

    fn advanced(&mut self, share: f64, seconds_left: f64) {
        if let Grid::Bars(grid, _) = self {
            grid.set_position((1000.0 * share).clamp(0.0, 1000.0) as u64);
            grid.set_message(format!("{} left", duration(seconds_left)));
        }
    }

    fn experiment(&mut self, name: &str, done: u64, epochs: u64) {
        if let Grid::Bars(_, cell) = self {
            cell.set_length(epochs);
            cell.set_position(done);
            cell.set_prefix(name.to_string());
            cell.set_message("");
        }
    }

    fn epoch(&mut self, epoch: &EpochDone<'_>) {
        if let Grid::Bars(_, cell) = self {
            cell.set_position(epoch.done);
            cell.set_message(format!("accuracy {:.2} %", 100.0 * epoch.accuracy));
        }
        if epoch.done == epoch.epochs {
            let line = format!("{}: {:.2} % after {} epochs", epoch.name, 100.0 * epoch.accuracy, epoch.done);
            match self {
                Grid::Lines => tell(&format!("{line}, {} left", duration(epoch.seconds_left))),
                _ => self.line(&line),
            }
        }
    }

    fn line(&mut self, line: &str) {
        match self {
            Grid::Bars(grid, _) => grid.suspend(|| tell(line)),
            Grid::Lines => tell(line),
            Grid::Nothing => {}
        }
    }

    fn finished(&mut self) {
        if let Grid::Bars(grid, cell) = self {
            cell.finish_and_clear();
            grid.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_two_decimals() {
        assert_eq!((short(3.0), short(1.0 / 3.0)), ("3".into(), "0.33".into()));
        assert_eq!(short(2000.0), "2000");
    }
}
