//! An audit of the mechanism as a statement, a page and JSON.

mod page;
mod statement;
mod value;

use dpsgd_audit::Audit;
use dpsgd_privacy::account::Question;
use dpsgd_privacy::mechanism::Mechanism;
use dpsgd_privacy::{Adversary, PrivacyError, adversary};
use serde_json::Value;

use crate::Sizes;

/// What there is to say about an audit.
#[derive(Debug)]
pub struct AuditReport {
    /// The run as configured.
    pub configured: Mechanism,
    /// N and m of it, as far as they are public.
    pub sizes: Sizes,
    /// The ε claimed for it at the δ of the audit, against each adversary that a theorem covers.
    pub claims: Vec<(Adversary, f64)>,
    /// What was found.
    pub found: Audit,
    /// Whether the keys came from a seed.
    pub seeded: bool,
}

impl AuditReport {
    /// Computes the claims about the configured run, to go with what was found.
    pub fn new(configured: Mechanism, sizes: Sizes, found: Audit, seeded: bool) -> Self {
        let claim = |adversary| -> Result<(Adversary, f64), PrivacyError> {
            let curve = adversary::curve(&configured, adversary)?;
            Ok((adversary, Question::Epsilon { delta: found.delta }.answer(&*curve)?.upper))
        };
        // An adversary without a theorem has no claim to state.
        let claims = [Adversary::A1, Adversary::A0].into_iter().filter_map(|who| claim(who).ok()).collect();
        Self { configured, sizes, claims, found, seeded }
    }

    /// The sizes of the run that was audited.
    fn audited_sizes(&self) -> Sizes {
        Sizes { samples: Some(self.found.samples as u64), groups: self.sizes.groups }
    }

    /// Everything that contradicts the claim, a sentence each.
    pub fn contradictions(&self) -> Vec<String> {
        let attacks = self.found.attacks.iter().filter(|attack| attack.contradicts()).map(|attack| {
            format!(
                "the attack of {} is better than the guarantee allows: at least µ = {:.4} leaks, {:.4} is \
                 claimed there",
                attack.adversary.name(),
                attack.mu.0,
                attack.mu.1
            )
        });
        let checks = self.found.checks.iter().filter(|check| check.failed());
        attacks.chain(checks.map(|check| format!("check {} failed: {}", check.name, check.detail))).collect()
    }

    /// The audit as a statement for people.
    pub fn statement(&self) -> String {
        statement::of(self)
    }

    /// The audit as a self-contained page.
    pub fn html(&self) -> String {
        page::of(self)
    }

    /// The audit as JSON.
    pub fn json(&self) -> Value {
        value::of(self)
    }
}
