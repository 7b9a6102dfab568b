//! The page of a run: what was run, what it guarantees and how it went.

use dpsgd_privacy::account::{Guarantee, Question};
use dpsgd_privacy::{Account, Adversary, PrivacyError};

use super::{Confusion, Measurement, PrivateMeasurement, figures, verdict, words};
use crate::html::{self, escape, list, paragraph, section};
use crate::rounding::up;
use crate::text::{duration, number, subscript, thousands};
use crate::{detected, reported_alphas};

/// What a model that ignores its inputs reaches on the public test set.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Baseline {
    /// The accuracy of always answering with the most common class.
    pub accuracy: Option<f64>,
    /// The loss of the best constant prediction.
    pub loss: Option<f64>,
}

impl Baseline {
    /// The accuracy in percent, if it is one.
    pub(super) fn percent(&self) -> Option<f64> {
        self.accuracy.filter(|share| (0.0..=1.0).contains(share)).map(|share| 100.0 * share)
    }
}

/// What the page is about.
#[derive(Clone, Debug)]
pub struct Page<'a> {
    /// "LeNet-5 on MNIST": see [`heading`].
    pub heading: String,
    /// Why the guarantee does not hold for the run, if it does not.
    pub note: Option<String>,
    /// Whether that is because of a seed.
    pub seeded: bool,
    /// Why the run is not finished, or ended early.
    pub ending: Option<String>,
    /// What all charged rounds guarantee.
    pub account: &'a Account,
    /// How the noise was drawn and what that means for the guarantee, in a sentence.
    pub noise: &'a str,
    /// What was run, name and value.
    pub settings: Vec<(&'static str, String)>,
    /// The lines of `metrics.jsonl`.
    pub metrics: &'a [Measurement],
    /// What to compare them with.
    pub baseline: Option<Baseline>,
    /// Why nothing was measured, where there is no public test set.
    pub unmeasured: Option<&'a str>,
    /// What was measured on a private test set.
    pub private_test: Option<PrivateMeasurement>,
    /// What the ledger says, name and value.
    pub ledger: Vec<(&'static str, String)>,
    /// The command that repeats the run.
    pub command: String,
}

impl Page<'_> {
    /// The page as HTML.
    ///
    /// # Errors
    /// If the trade-off functions could not be computed.
    pub fn html(&self) -> Result<String, PrivacyError> {
        let title = format!("Training report: {}", self.heading);
        let mut page = self.head();
        let curves = html::figures(&figures::tradeoff(self.account)?);
        page.push_str(&section("What is guaranteed", &(self.guaranteed() + &curves + &self.theorems())));
        page.push_str(&section("How it went", &self.went()));
        page.push_str(&section("What was run", &pairs(&self.settings)));
        page.push_str(&section("What the ledger says", &self.ledger()));
        page.push_str(&section("How to repeat it", &self.again()));
        page.push_str(&section("What the guarantee does not cover", &list(&words::caveats(self))));
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
            let constant = self.baseline.and_then(|baseline| baseline.percent());
            let constant = constant.map(|value| format!("; always the most common class: {value:.2}\u{a0}%"));
            let what = format!("test accuracy{}", constant.unwrap_or_default());
            figure(format!("{:.2} %", 100.0 * accuracy), what);
        } else if let Some(last) = last.filter(|_| self.unmeasured.is_none()) {
            let constant = self.baseline.and_then(|baseline| baseline.loss);
            let constant = constant.map(|value| format!("; the best constant: {value:.4}"));
            figure(format!("{:.4}", last.test_loss), format!("test loss{}", constant.unwrap_or_default()));
        }
        if let Some(seen) = last.and_then(|last| last.two_classes) {
            figure(format!("{:.3}", seen.auc), "AUC on the test set; a constant has 0.5".into());
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
        if let Some((seconds, speed)) = last.and_then(Measurement::time) {
            let speed = speed.map(|speed| format!(", {} samples/s", thousands(speed as u64)));
            figure(duration(seconds), format!("of training{}", speed.unwrap_or_default()));
        }
        let warning = last.and_then(|last| verdict(last, self.baseline));
        let warning = warning.map(|said| format!("<p class=\"warning\">{}</p>\n", escape(&said)));
        let warning = warning.unwrap_or_default();
        format!(
            "<header>\n<h1>{}</h1>\n<p class=\"lead\">What was trained, what it guarantees and how it \
             went.</p>\n{badge}\n{ending}<div class=\"figures\">\n{figures}</div>\n{warning}</header>\n",
            escape(&self.heading)
        )
    }

    fn symbols(&self) -> (&'static str, String) {
        match self.account.question {
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
        for alpha in reported_alphas(self.account) {
            rows.push((
                format!(
                    "Detected by the best attack with {}\u{a0}% false alarms, at most",
                    number(100.0 * alpha)
                ),
                Box::new(move |given| detected(given, alpha)),
            ));
        }
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
                "No separate claim is made against {}: {why}.",
                subscript(*adversary)
            )));
        }
        text
    }

    /// Why the numbers hold: in words, with the formula in small print.
    fn theorems(&self) -> String {
        let said = self.account.guarantees.iter().map(|given| {
            format!(
                "<p>{}<br><small>{}</small></p>\n",
                escape(&words::theorem(&self.account.mechanism, given.adversary)),
                escape(&given.basis)
            )
        });
        format!("<h3>Why this holds</h3>\n{}", said.collect::<String>())
    }

    fn went(&self) -> String {
        let from_zero = self.account.mechanism.releases().is_empty();
        let mut figures = figures::over_time(self.metrics, self.baseline, from_zero);
        if figures.is_empty() {
            return paragraph("No epoch is finished yet.");
        }
        figures.extend(
            self.metrics.last().and_then(|last| last.two_classes).map(|seen| figures::calibration(&seen)),
        );
        let said = match (&self.private_test, self.unmeasured) {
            (Some(private), _) => Some(format!("Measured {}.", private.found())),
            (None, Some(why)) => Some(format!("Of this run: {why}")),
            (None, None) => None,
        };
        let unmeasured = said.map(|said| paragraph(&said)).unwrap_or_default();
        unmeasured + &html::figures(&figures) + &self.two_classes()
    }

    /// What predictions of two classes look like: how well they rank, and the confusion table.
    fn two_classes(&self) -> String {
        let Some(seen) = self.metrics.last().and_then(|last| last.two_classes) else {
            return String::new();
        };
        let Confusion { true_negatives, false_positives, false_negatives, true_positives } = seen.confusion;
        let header = ["Test set", "predicted class 0", "predicted class 1"].map(str::to_string);
        let row = |name: &str, cells: [u64; 2]| {
            let mut row = vec![name.to_string()];
            row.extend(cells.map(thousands));
            row
        };
        let rows = [
            row("class 0", [true_negatives, false_positives]),
            row("class 1", [false_negatives, true_positives]),
        ];
        let said = format!(
            "AUC is {:.4}: how often a random sample of class 1 gets a higher probability than one of class \
             0. Average precision is {:.4}; a model that ignores its inputs has the share of class 1, \
             {:.4}. Class 1 is predicted where its probability is above ½.",
            seen.auc,
            seen.average_precision,
            (false_negatives + true_positives) as f64
                / (true_negatives + false_positives + false_negatives + true_positives) as f64
        );
        format!("<h3>The two classes</h3>\n{}{}", paragraph(&said), html::table(&header, &rows))
    }

    fn ledger(&self) -> String {
        paragraph(
            "Each round is charged to the ledger, and the charge reaches the disk, before its update is \
             applied. A charged round counts even if a crash lost it: a crash can only make the stated ε \
             larger.",
        ) + &pairs(&self.ledger)
    }

    fn again(&self) -> String {
        let draws = if !self.seeded {
            "The randomness came from the operating system, so the measurements will differ a little. The \
             guarantee will be the same."
        } else {
            "With the same seed, version and kind of processor, every bit will be the same."
        };
        format!("<pre>{}</pre>\n{}", escape(&self.command), paragraph(draws))
    }
}

/// The heading of a page, from the names of the network and the data.
///
/// ```
/// use dpsgd_report::run::heading;
/// assert_eq!(heading("lenet5", "mnist"), "LeNet-5 on MNIST");
/// assert_eq!(heading("mlp", "train"), "Multilayer perceptron on the data set “train”");
/// ```
pub fn heading(net: &str, data: &str) -> String {
    let net = match net {
        "lenet5" => "LeNet-5",
        "paper-cnn" => "The paper's CNN",
        "mlp" => "Multilayer perceptron",
        "logistic" => "Logistic regression",
        other => other,
    };
    match data {
        "mnist" => format!("{net} on MNIST"),
        "fashion-mnist" => format!("{net} on Fashion-MNIST"),
        "cifar10" => format!("{net} on CIFAR-10"),
        "adult" => format!("{net} on Adult"),
        other => format!("{net} on the data set “{other}”"),
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
    use crate::run::NOT_PRIVATE;
    use dpsgd_privacy::mechanism::{Length, NoiseScale, PhaseConfig, RunConfig, Sampling};

    /// The defaults of a training run on 60 000 public samples.
    fn account() -> Account {
        let run = RunConfig::single(PhaseConfig {
            sampling: Sampling::Subsample { samples: 60_000, groups: 2048, group_size: 1 },
            length: Length::Epochs(15),
            noise: NoiseScale::Sigma(1.0),
            filtered: false,
        });
        let question = Question::Epsilon { delta: 1e-5 };
        Account::of(&run.check().unwrap(), question, &[]).unwrap()
    }

    fn metrics(private: bool) -> Vec<Measurement> {
        let epoch = |i: u64| {
            let t = i as f64;
            Measurement {
                epoch: t,
                round: 58 * i,
                updates: 58 * i,
                test_loss: 0.1 + 2.0 * (-0.5 * t).exp(),
                test_accuracy: Some(0.97 - 0.8 * (-0.6 * t).exp()),
                test_clipping_fraction: 0.3 + 0.6 * (-0.3 * t).exp(),
                two_classes: None,
                iterates: None,
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

    /// A file may hold any number: whatever a damaged one holds is drawn, or left out, and the page stays a
    /// page.
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
                let baseline = Some(Baseline { accuracy: Some(a), loss: Some(b) });
                let figures = html::figures(&figures::over_time(&epochs, baseline, true));
                assert!(!figures.contains("NaN") && !figures.contains("inf"), "{a} {b}: {figures}");
                let seconds = epochs.iter().filter_map(|epoch| epoch.seconds);
                seconds.for_each(|seconds| drop(duration(seconds)));
            }
        }
    }

    /// Nothing is fetched from anywhere, nothing runs, and nothing a user named breaks the page.
    #[test]
    fn the_page_is_self_contained() {
        for private in [true, false] {
            let account = account();
            let page = Page {
                heading: "<net> on \"data\" & more".into(),
                note: (!private).then(|| NOT_PRIVATE.to_string()),
                seeded: !private,
                ending: None,
                account: &account,
                noise: "exact: a real Gaussian, rounded to a grid without error",
                settings: vec![("Data", "MNIST, 60000 samples".into()), ("C", "1, constant".into())],
                metrics: &metrics(private),
                baseline: Some(Baseline { accuracy: Some(0.1135), loss: Some(2.31) }),
                unmeasured: None,
                private_test: None,
                ledger: vec![("Rounds charged", "870".into()), ("Resumed", "never".into())],
                command: "dpsgd train --data mnist --net lenet5".into(),
            };
            let html = page.html().unwrap();
            for part in ["http:", "https:", "<script", "src=", "href=", "url(", "@import", "<net>"] {
                assert!(!html.contains(part), "{part}");
            }
            assert_eq!(html.matches("<svg").count() - html.matches("<svg x=").count(), 6);
            assert_eq!(html.contains(NOT_PRIVATE), !private);
            assert_eq!(html.contains("training data is protected"), private);
            assert!(html.contains("&lt;net&gt; on &quot;data&quot; &amp; more"));
            if let Ok(path) = std::env::var("DPSGD_SHOW") {
                std::fs::write(format!("{path}/{private}.html"), &html).unwrap();
            }
        }
    }
}
