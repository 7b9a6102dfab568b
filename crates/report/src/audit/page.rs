//! An audit as a page.

use dpsgd_audit::{Attack, Verdict, level};

use super::{AuditReport, statement};
use crate::chart::{Axis, Band, Chart, Dash, GREY, Marker, Scale, Series, Stroke};
use crate::html::{self, Figure};
use crate::rounding::{down, up};
use crate::statement::described;
use crate::text::{number, subscript};

/// The plot of a trade-off curve.
const SQUARE: (f64, f64) = (430.0, 430.0);

/// The whole page.
pub fn of(report: &AuditReport) -> String {
    let found = &report.found;
    let (class, badge) = match found.contradicts() {
        false => ("private", "nothing contradicts the claim"),
        true => ("warning", "CONTRADICTION"),
    };
    let mut body = format!(
        "<h1>Audit of the mechanism</h1>\n<p class=\"lead\">The production code, attacked on worst-case \
         data.</p>\n<span class=\"badge {class}\">{badge}</span>\n{}",
        html::paragraph(&statement::verdict(report))
    );
    let figures: Vec<Figure> = found
        .attacks
        .iter()
        .map(|attack| Figure::new(&chart(attack), SQUARE, caption(attack, found.delta)))
        .collect();
    body.push_str(&html::section("Measured and claimed", &html::figures(&figures)));
    for attack in &found.attacks {
        let title = format!("The best test of {}", subscript(attack.adversary));
        body.push_str(&html::section(&title, &table(attack)));
    }
    let rows: Vec<Vec<String>> = found
        .checks
        .iter()
        .map(|check| {
            let verdict = match check.verdict {
                Verdict::Passed => "passed",
                Verdict::Failed => "FAILED",
                Verdict::NotApplicable => "not applicable",
            };
            vec![check.name.to_string(), verdict.to_string(), check.what.to_string(), check.detail.clone()]
        })
        .collect();
    let header = ["check", "verdict", "what", "figures"].map(String::from);
    body.push_str(&html::section("Checks", &html::wide_table(&header, &rows)));
    let runs = format!(
        "<p>As configured:</p>\n<pre>{}</pre>\n<p>Audited: shorter, otherwise the same. The claims above \
         are about this run:</p>\n<pre>{}</pre>\n{}",
        html::escape(&described(&report.configured, report.sizes)),
        html::escape(&described(&found.audited, report.audited_sizes())),
        html::paragraph(&format!(
            "Canaries: {}. {} runs on each of the two data sets. False-alarm rate of the whole audit: {}.",
            found.data,
            found.trials,
            number(level::WHOLE)
        ))
    );
    body.push_str(&html::section("The two runs", &runs));
    html::page("dpsgd audit", &body, "The limits are exact (Clopper and Pearson).")
}

fn chart(attack: &Attack) -> Chart {
    let who = subscript(attack.adversary);
    let mut points: Vec<_> = attack.points.iter().collect();
    points.sort_by(|a, b| a.alpha.0.total_cmp(&b.alpha.0));
    let axis = |label: &str| Axis { label: label.to_string(), scale: Scale::Linear, range: Some((0.0, 1.0)) };
    let line = |label: &str, points, colour, dash, width, marker| Series {
        label: label.to_string(),
        points,
        stroke: Stroke { colour, dash, width, marker },
    };
    Chart {
        title: format!("The attack of {who}"),
        subtitle: None,
        x: axis("false-alarm rate α"),
        y: axis("miss rate β"),
        series: vec![
            line("random guess, 1 − α", vec![(0.0, 1.0), (1.0, 0.0)], GREY, Dash::Long, 1.2, None),
            line(
                &format!("claimed against {}: no attack does better", subscript(attack.claim)),
                attack.curve.clone(),
                0,
                Dash::Solid,
                2.4,
                None,
            ),
            line(
                "measured",
                points.iter().map(|point| (point.alpha.0, point.beta.0)).collect(),
                1,
                Dash::Dotted,
                1.4,
                Some(Marker::Circle),
            ),
        ],
        bands: vec![Band {
            label: "limits of the measurement".to_string(),
            lower: points.iter().map(|point| (point.alpha.1.lower, point.beta.1.lower)).collect(),
            upper: points.iter().map(|point| (point.alpha.1.upper, point.beta.1.upper)).collect(),
            colour: 1,
        }],
    }
}

fn caption(attack: &Attack, delta: f64) -> String {
    format!(
        "The attack proves that at least µ = {} leaks, where at most {} is claimed, and at least ε = {} at \
         δ = {}, where at most {} is claimed.",
        down(attack.mu.0, 4),
        up(attack.mu.1, 4),
        down(attack.epsilon.0, 4),
        number(delta),
        up(attack.epsilon.1, 4)
    )
}

fn table(attack: &Attack) -> String {
    let header = ["α", "α, limits", "β", "β, limits", "claimed β at α, at least", ""].map(String::from);
    let rows: Vec<Vec<String>> = attack
        .points
        .iter()
        .map(|point| {
            let limits =
                |limits: dpsgd_privacy::Interval| format!("{:.5} – {:.5}", limits.lower, limits.upper);
            vec![
                format!("{:.5}", point.alpha.0),
                limits(point.alpha.1),
                format!("{:.5}", point.beta.0),
                limits(point.beta.1),
                format!("{:.5}", point.claimed_there),
                if point.contradicts() { "CONTRADICTION".to_string() } else { String::new() },
            ]
        })
        .collect();
    html::wide_table(&header, &rows)
}
