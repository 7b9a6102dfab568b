//! An audit as JSON.

use dpsgd_audit::{Attack, Check, Verdict, level};
use serde_json::{Value, json};

use super::AuditReport;
use crate::json::{interval, mechanism};

/// The whole audit.
pub fn of(report: &AuditReport) -> Value {
    let found = &report.found;
    let claims: Value = report
        .claims
        .iter()
        .map(|(adversary, epsilon)| {
            json!({ "adversary": adversary.name(), "delta": found.delta, "epsilon": epsilon })
        })
        .collect();
    json!({
        "contradiction": found.contradicts(),
        "contradictions": report.contradictions(),
        "false_alarm_rate": level::WHOLE,
        "configured": { "mechanism": mechanism(&report.configured, report.sizes), "claims": claims },
        "audited": { "mechanism": mechanism(&found.audited, report.audited_sizes()), "data": found.data },
        "trials": found.trials,
        "seeded": report.seeded,
        "delta": found.delta,
        "seconds": found.wall.as_secs_f64(),
        "attacks": found.attacks.iter().map(attack).collect::<Value>(),
        "checks": found.checks.iter().map(check).collect::<Value>(),
    })
}

fn attack(attack: &Attack) -> Value {
    let points: Value = attack
        .points
        .iter()
        .map(|point| {
            json!({
                "threshold": point.threshold,
                "false_alarms": point.false_alarms,
                "misses": point.misses,
                "alpha": { "measured": point.alpha.0, "limits": interval(point.alpha.1) },
                "beta": { "measured": point.beta.0, "limits": interval(point.beta.1) },
                "claimed_beta_at_upper_alpha": point.claimed,
                "claimed_beta_at_measured_alpha": point.claimed_there,
                "contradicts": point.contradicts(),
            })
        })
        .collect();
    json!({
        "adversary": attack.adversary.name(),
        "claim_of": attack.claim.name(),
        "contradicts": attack.contradicts(),
        "mu": { "proved": attack.mu.0, "claimed_there": attack.mu.1 },
        "closest": { "proved": attack.closest.0, "claimed_there": attack.closest.1 },
        "epsilon": { "proved": attack.epsilon.0, "claimed": attack.epsilon.1 },
        "points": points,
    })
}

fn check(check: &Check) -> Value {
    json!({
        "name": check.name,
        "what": check.what,
        "verdict": match check.verdict {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            Verdict::NotApplicable => "not applicable",
        },
        "detail": check.detail,
        "false_alarm_rate": check.level,
    })
}
