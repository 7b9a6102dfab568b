//! What an audit of a training run proved, as a statement, as JSON and as a page.

use std::fmt::Write;

use dpsgd_report::chart::{Axis, Chart, Dash, Marker, Scale, Series, Stroke};
use dpsgd_report::html::{self, Figure};
use dpsgd_report::rounding::{down, up};
use dpsgd_report::text::{number, subscript, wrapped};
use serde_json::{Value, json};

use super::{Between, CanaryKind, TrainingAuditResult};

/// What belongs beside every output: it comes from private data.
pub const COST: &str = "What is said here is a function of a second run on the same data: publishing it \
    costs the guarantee of the run once more.";

impl TrainingAuditResult {
    /// Whether more was proved than is claimed, and what: by chance with probability 1 − confidence.
    pub fn contradiction(&self) -> Option<String> {
        (self.proved.epsilon > self.at_delta.upper).then(|| {
            format!(
                "the run leaks more than is claimed: ε ≥ {} was shown, ε ≤ {} is claimed (by chance with \
                 probability {})",
                down(self.proved.epsilon, 4),
                up(self.at_delta.upper, 4),
                number(1.0 - self.audit.confidence)
            )
        })
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let curve = self.points.iter().map(|point| {
            json!({ "delta": point.delta, "epsilon_claimed": point.upper, "epsilon_lower": point.lower })
        });
        json!({
            "run": self.run,
            "kind": self.audit.kind.name(),
            "canaries": self.audit.canaries,
            "guesses": self.proved.by.guesses,
            "correct": self.proved.by.correct,
            "confidence": self.audit.confidence,
            "delta": self.at_delta.delta,
            "epsilon_lower": self.proved.epsilon,
            "mu_lower": self.proved.mu,
            "epsilon_claimed": self.at_delta.upper,
            "adversary": self.adversary.name(),
            "contradiction": self.contradiction().is_some(),
            "cost": COST,
            "curve": curve.collect::<Vec<_>>(),
        })
    }

    /// For people.
    pub fn statement(&self) -> String {
        let mut text = "WHAT WAS SHOWN AND WHAT IS CLAIMED\n".to_string();
        let _ = writeln!(
            text,
            "  {} ≤ ε ≤ {} at δ = {}: shown with confidence {}, claimed against {}",
            down(self.proved.epsilon, 4),
            up(self.at_delta.upper, 4),
            number(self.at_delta.delta),
            number(self.audit.confidence),
            subscript(self.adversary)
        );
        let _ = writeln!(text, "  µ ≥ {} was shown", down(self.proved.mu, 4));
        let _ = writeln!(
            text,
            "  {} canaries ({}), {} guesses, {} of them right",
            self.audit.canaries,
            self.audit.kind.name(),
            self.proved.by.guesses,
            self.proved.by.correct
        );
        text.push_str("\n  δ          shown, ε ≥   claimed, ε ≤\n");
        for row in &self.rows() {
            let _ = writeln!(text, "  {:<9}  {:<11}  {}", row[0], row[1], row[2]);
        }
        text.push_str("\nWHAT IT MEANS\n");
        text.push_str(&wrapped(self.meaning(), 2));
        text.push_str(&wrapped(COST, 2));
        text
    }

    /// As a self-contained page.
    pub fn html(&self) -> String {
        let side = |label: &str, colour, dash, marker, of: &dyn Fn(&Between) -> f64| Series {
            label: label.to_string(),
            points: self.points.iter().map(|point| (point.delta, of(point))).collect(),
            stroke: Stroke { colour, dash, width: 2.0, marker: Some(marker) },
        };
        let chart = Chart {
            title: "What was shown and what is claimed".into(),
            subtitle: None,
            x: Axis { label: "δ".into(), scale: Scale::Log10, range: None },
            y: Axis { label: "ε".into(), scale: Scale::Linear, range: None },
            series: vec![
                side("claimed: at most", 0, Dash::Solid, Marker::Circle, &|point| point.upper),
                side("shown: at least", 1, Dash::Dashed, Marker::Triangle, &|point| point.lower),
            ],
            bands: Vec::new(),
        };
        let caption = "With the stated confidence, the truth about this training lies between the curves.";
        let figure = Figure::new(&chart, (560.0, 320.0), caption);
        let header = ["δ", "shown: ε at least", "claimed: ε at most"].map(String::from);
        let lead = format!(
            "{} canaries ({}) in one training run of {}; confidence {}.",
            self.audit.canaries,
            self.audit.kind.name(),
            self.net,
            number(self.audit.confidence)
        );
        let body = format!(
            "<header>\n<h1>Training audit</h1>\n<p class=\"lead\">{}</p>\n</header>\n{}{}{}{}",
            html::escape(&lead),
            html::section("At every δ", &figure.html(true)),
            html::table(&header, &self.rows()),
            html::section("What it means", &(html::paragraph(self.meaning()) + &html::paragraph(COST))),
            html::paragraph(&format!("δ of the run: {}.", number(self.at_delta.delta))),
        );
        html::page("Training audit", &body, "Claims are rounded up, what was shown is rounded down.")
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let row = |point: &Between| vec![number(point.delta), down(point.lower, 4), up(point.upper, 4)];
        self.points.iter().map(row).collect()
    }

    fn meaning(&self) -> &'static str {
        match self.audit.kind {
            CanaryKind::Label => {
                "The lower bound is what an attacker proves who saw only the final model and put wrong \
                 labels into the data. It is usually far below the claim: the claim holds against anyone who \
                 sees all updates, and for the worst data."
            }
            CanaryKind::Gradient => {
                "The lower bound is what an attacker proves who saw every update and chose its samples' \
                 gradients, but did not know the batches. One run with few canaries cannot prove all there \
                 is: the gap to the claim is not evidence that the claim is loose."
            }
        }
    }
}
