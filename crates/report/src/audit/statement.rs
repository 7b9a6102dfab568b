//! An audit as a statement for people.

use std::fmt::Write;

use dpsgd_audit::{Attack, Check, Verdict, level};

use super::AuditReport;
use crate::rounding::{down, up};
use crate::statement::described;
use crate::text::{number, subscript, wrapped};

/// The whole audit.
pub fn of(report: &AuditReport) -> String {
    let found = &report.found;
    let mut text = String::from("THE RUN AS CONFIGURED\n");
    text.push_str(&described(&report.configured, report.sizes));
    text.push_str(&claims(report));
    text.push_str(
        "\nTHE RUN THAT WAS AUDITED: SHORTER, OTHERWISE THE SAME. THE CLAIMS BELOW ARE ABOUT THIS RUN\n",
    );
    text.push_str(&described(&found.audited, report.audited_sizes()));
    let _ = writeln!(text, "  {:<10} {}", "Canaries", wrapped(&found.data, 13).trim());
    let _ = writeln!(
        text,
        "  {:<10} {} runs on D and {} on D', {}, in {:.1} s",
        "Trials",
        found.trials,
        found.trials,
        if report.seeded { "keys from the seed" } else { "each with a fresh key" },
        found.wall.as_secs_f64()
    );
    for attack in &found.attacks {
        text.push('\n');
        text.push_str(&attacked(attack, found.delta));
    }
    text.push_str("\nCHECKS\n");
    found.checks.iter().for_each(|check| text.push_str(&checked(check)));
    text.push('\n');
    text.push_str(&wrapped(&verdict(report), 0));
    text
}

fn claims(report: &AuditReport) -> String {
    let list: Vec<String> = report
        .claims
        .iter()
        .map(|(adversary, epsilon)| format!("ε ≤ {} against {}", up(*epsilon, 5), subscript(*adversary)))
        .collect();
    format!("  {:<10} {} at δ = {}\n", "Claimed", list.join(", "), number(report.found.delta))
}

fn attacked(attack: &Attack, delta: f64) -> String {
    let who = subscript(attack.adversary);
    let mut text = format!("THE BEST TEST OF {who}\n");
    text.push_str(
        "  false alarms α, limits           misses β, limits                 claimed: β at least\n",
    );
    for point in &attack.points {
        let band = |(share, limits): (f64, dpsgd_privacy::Interval)| {
            format!("{share:.5}  {:.5} – {:.5}", limits.lower, limits.upper)
        };
        let mark = if point.contradicts() { "  CONTRADICTION" } else { "" };
        let _ = writeln!(
            text,
            "  {:<32} {:<32} {:.5}{mark}",
            band(point.alpha),
            band(point.beta),
            point.claimed_there
        );
    }
    let (proved, claimed) = attack.mu;
    let whose = if attack.claim == attack.adversary {
        String::new()
    } else {
        format!(
            " (the claim is the one against {}; nothing better is proved for {who})",
            subscript(attack.claim)
        )
    };
    let said = format!(
        "Proved: µ ≥ {}, claimed there µ ≤ {}; nearest {:.1} % of the claim{whose}",
        down(proved, 4),
        up(claimed, 4),
        100.0 * attack.closest.0 / attack.closest.1.max(1e-300)
    );
    text.push_str(&wrapped(&said, 2));
    let _ = writeln!(
        text,
        "  Proved: ε ≥ {} at δ = {}, claimed ε ≤ {}",
        down(attack.epsilon.0, 4),
        number(delta),
        up(attack.epsilon.1, 4)
    );
    text
}

fn checked(check: &Check) -> String {
    let verdict = match check.verdict {
        Verdict::Passed => "passed",
        Verdict::Failed => "FAILED",
        Verdict::NotApplicable => "–",
    };
    let said = wrapped(&format!("{}: {}", check.what, check.detail), 24);
    format!("  {:<13} {verdict:<7} {}\n", check.name, said.trim())
}

/// The verdict.
pub fn verdict(report: &AuditReport) -> String {
    let rate = number(level::WHOLE);
    match report.contradictions().as_slice() {
        [] => format!(
            "Nothing contradicts the claim. A correct implementation is contradicted with probability at \
             most {rate}, counting all thresholds, both error rates, both adversaries and all checks \
             together. Finding nothing is not a proof: the guarantee rests on its theorem, and an audit \
             sees only the faults it looks for."
        ),
        found => format!(
            "CONTRADICTION: the code does not do what is claimed. {}. A correct implementation is \
             contradicted with probability at most {rate}.",
            found.join(". ")
        ),
    }
}
