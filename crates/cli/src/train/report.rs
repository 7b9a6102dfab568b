//! `report.html`: one page that says what was run, what it guarantees and how it went.

mod figures;
mod words;

use dpsgd_privacy::Adversary;
use dpsgd_train::NoiseKind;

use super::metrics::Epoch;
use crate::Failure;
use crate::account::{Guarantee, Report};
use crate::html::{self, escape, list, paragraph, section};
use crate::rounding::up;
use crate::settings::{Question, number};
use crate::statement::{percent, subscript};

/// What the page is about.
pub struct Page<'a> {
    /// "LeNet-5 on MNIST".
    pub heading: String,
    /// Why the guarantee does not hold for the run, if so.
    pub note: Option<String>,
    /// Whether that is because of a seed.
    pub seeded: bool,
    /// Why it is not at its end, or ended early.
    pub ending: Option<String>,
    /// What all rounds that were charged guarantee.
    pub account: &'a Report,
    /// How the noise was drawn.
    pub noise: NoiseKind,
    /// What was run, name and value.
    pub settings: Vec<(&'static str, String)>,
    /// The lines of `metrics.jsonl`.
    pub metrics: &'a [Epoch],
    /// What the ledger says, name and value.
    pub ledger: Vec<(&'static str, String)>,
    /// The command that does it again.
    pub command: String,
}

impl Page<'_> {
    /// The page as HTML.
    pub fn html(&self) -> Result<String, Failure> {
        let title = format!("Training report: {}", self.heading);
        let mut page = self.head();
        page.push_str(&section("What is guaranteed", &self.guaranteed()));
        let curve = figures::tradeoff(self.account)?;
        page.push_str(&curve.html(true));
        page.push_str(&section("How it went", &self.went()));
        page.push_str(&section("What was run", &pairs(&self.settings)));
        page.push_str(&section("What the ledger says", &self.ledger()));
        page.push_str(&section("How to do it again", &self.again()));
        page.push_str(&section("What to keep in mind", &list(&words::caveats(self))));
        let footer = "Every ε, δ and µ is the certified upper end of an interval, rounded up.";
        Ok(html::page(&title, &page, footer))
    }

    fn head(&self) -> String {
        let badge = match &self.note {
            None => "<span class=\"badge private\">differentially private</span>".to_string(),
            Some(note) => format!("<span class=\"badge warning\">{}</span>", escape(note)),
        };
        let ending = self.ending.as_ref().map(|ending| paragraph(ending)).unwrap_or_default();
        let mut figures = String::new();
        let mut figure = |value: String, what: String| {
            figures.push_str(&format!(
                "<div><b>{}</b><span>{}</span></div>\n",
                escape(&value),
                escape(&what)
            ));
        };
        let last = self.metrics.last();
        if let Some(accuracy) = last.and_then(|last| last.test_accuracy) {
            figure(format!("{:.2} %", 100.0 * accuracy), "test accuracy".into());
        } else if let Some(last) = last {
            figure(format!("{:.4}", last.test_loss), "test loss".into());
        }
        for given in self.account.guarantees.iter().rev() {
            let (symbol, at) = self.symbols();
            let sees = match given.adversary {
                Adversary::A0 => "who sees the updates",
                Adversary::A1 => "who also knows every batch",
            };
            figure(
                format!("{symbol} ≤ {}", up(given.answer.upper, 4)),
                format!("{at}, against {} {sees}", subscript(given.adversary)),
            );
        }
        if let Some((seconds, speed)) = last.and_then(|last| last.seconds.zip(last.samples_per_s)) {
            let speed = super::progress::thousands(speed as u64);
            figure(super::progress::duration(seconds), format!("of training, {speed} samples/s"));
        }
        format!(
            "<header>\n<h1>{}</h1>\n<p class=\"lead\">A training report for those who have to answer for \
             it.</p>\n{badge}\n{ending}<div class=\"figures\">\n{figures}</div>\n</header>\n",
            escape(&self.heading)
        )
    }

    fn symbols(&self) -> (&'static str, String) {
        match self.account.run.question {
            Question::Epsilon { delta } => ("ε", format!("at δ = {}", number(delta))),
            Question::Delta { epsilon } => ("δ", format!("at ε = {}", number(epsilon))),
        }
    }

    fn guaranteed(&self) -> String {
        let mut text: String = words::promise(self).iter().map(|said| paragraph(said)).collect();
        let mut rows: Vec<Row> = Vec::new();
        let (symbol, at) = self.symbols();
        rows.push((format!("{symbol} {at}, at most"), Box::new(|given| up(given.answer.upper, 6))));
        rows.push((
            "µ of Gaussian DP, at most".into(),
            Box::new(|given| match &given.mu {
                Ok((mu, _)) => up(mu.upper, 6),
                Err(_) => "not certified".to_string(),
            }),
        ));
        for (i, (alpha, _)) in self.account.guarantees[0].tradeoff.iter().enumerate() {
            rows.push((
                format!("The best attack with {} % false alarms finds, at most", number(100.0 * alpha)),
                Box::new(move |given| percent(given.tradeoff[i].1)),
            ));
        }
        rows.push(("The theorem".into(), Box::new(|given| given.basis.clone())));
        let mut header = vec![String::new()];
        header.extend(self.account.guarantees.iter().map(|given| {
            let sees = match given.adversary {
                Adversary::A1 => "knows every batch",
                Adversary::A0 => "sees the updates only",
            };
            format!("{} {sees}", subscript(given.adversary))
        }));
        let row = |(name, show): Row| {
            let mut cells = vec![name];
            cells.extend(self.account.guarantees.iter().map(&show));
            cells
        };
        text.push_str(&html::table(&header, &rows.into_iter().map(row).collect::<Vec<_>>()));
        for (adversary, why) in &self.account.refused {
            text.push_str(&paragraph(&format!(
                "Nothing more is claimed against {}: {why}.",
                subscript(*adversary)
            )));
        }
        text
    }

    fn went(&self) -> String {
        let figures = figures::over_time(self.metrics);
        if figures.is_empty() {
            return paragraph("No epoch is done yet.");
        }
        html::figures(&figures)
    }

    fn ledger(&self) -> String {
        paragraph(
            "The ledger is written and synced before a round's update is applied. What it charges counts, \
             whether or not the round was finished: a crash can only make the stated guarantee larger.",
        ) + &pairs(&self.ledger)
    }

    fn again(&self) -> String {
        let draws = if !self.seeded {
            "The randomness came from the operating system, so the numbers will differ a little; the \
             guarantee will be the same."
        } else {
            "With the same seed, version and kind of processor every bit will be the same."
        };
        format!("<pre>{}</pre>\n{}", escape(&self.command), paragraph(draws))
    }
}

/// A name, and how its value is taken from a guarantee.
type Row = (String, Box<dyn Fn(&Guarantee) -> String>);

/// A table of names and values.
fn pairs(rows: &[(&'static str, String)]) -> String {
    let rows: Vec<_> = rows.iter().map(|(name, value)| vec![name.to_string(), value.clone()]).collect();
    html::table(&[], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::mechanism::{Size, settled};
    use crate::train::metrics::NOT_PRIVATE;
    use crate::train::settings::TrainSettings;

    fn metrics(private: bool) -> Vec<Epoch> {
        let epoch = |i: u64| {
            let t = i as f64;
            Epoch {
                epoch: t,
                round: 58 * i,
                updates: 58 * i,
                test_loss: 0.1 + 2.0 * (-0.5 * t).exp(),
                test_accuracy: Some(0.97 - 0.8 * (-0.6 * t).exp()),
                test_clipping_fraction: 0.3 + 0.6 * (-0.3 * t).exp(),
                step: 0.5,
                clip: 1.0,
                epsilon: 0.9 + 0.55 * t.sqrt(),
                delta: 1e-5,
                adversary: "A0".into(),
                seconds: Some(5.5 * t),
                samples_per_s: Some(43_210.0),
                private,
                note: None,
            }
        };
        (1..=15).map(epoch).collect()
    }

    /// A file may hold any number: whatever a damaged one holds is drawn, or left out, and the page stays a page.
    #[test]
    fn any_numbers_are_drawn() {
        let edges = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            5e-324,
            -5e-324,
            1e-9,
            1e15,
            1e300,
            f64::MAX,
            f64::MIN,
            f64::NAN,
            f64::INFINITY,
        ];
        for a in edges {
            for b in edges {
                let mut epochs = metrics(true);
                epochs.truncate(3);
                for (epoch, value) in epochs.iter_mut().zip([a, b, 0.5]) {
                    (epoch.epoch, epoch.test_loss, epoch.epsilon) = (value, value, value);
                    (epoch.test_accuracy, epoch.test_clipping_fraction) = (Some(value), value);
                    (epoch.samples_per_s, epoch.seconds, epoch.delta) = (Some(value), Some(value), value);
                }
                let figures = html::figures(&figures::over_time(&epochs));
                assert!(!figures.contains("NaN") && !figures.contains("inf"), "{a} {b}: {figures}");
                let seconds = epochs.iter().filter_map(|epoch| epoch.seconds);
                seconds.for_each(|seconds| drop(super::super::progress::duration(seconds)));
            }
        }
    }

    /// Nothing is fetched from anywhere, nothing runs, and nothing a user named breaks the page.
    #[test]
    fn the_page_is_self_contained() {
        for private in [true, false] {
            let size = Size { samples: 60_000, public: true };
            let run = settled(&TrainSettings::default(), size, &[]).unwrap().run;
            let account = Report::of(run).unwrap();
            let page = Page {
                heading: "<net> on \"data\" & more".into(),
                note: (!private).then(|| NOT_PRIVATE.to_string()),
                seeded: !private,
                ending: None,
                account: &account,
                noise: NoiseKind::Exact,
                settings: vec![("Data", "MNIST, 60000 samples".into()), ("C", "1, constant".into())],
                metrics: &metrics(private),
                ledger: vec![("Rounds charged", "870".into()), ("Resumed", "never".into())],
                command: "dpsgd train --data mnist --net lenet5".into(),
            };
            let html = page.html().unwrap();
            for part in ["http:", "https:", "<script", "src=", "href=", "url(", "@import", "<net>"] {
                assert!(!html.contains(part), "{part}");
            }
            assert_eq!(html.matches("<svg").count() - html.matches("<svg x=").count(), 5);
            assert_eq!(html.contains(NOT_PRIVATE), !private);
            assert!(html.contains("&lt;net&gt; on &quot;data&quot; &amp; more"));
            if let Ok(path) = std::env::var("DPSGD_SHOW") {
                std::fs::write(format!("{path}/{private}.html"), &html).unwrap();
            }
        }
    }
}
