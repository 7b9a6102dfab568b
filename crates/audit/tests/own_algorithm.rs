//! The audit of a user's own inner algorithm: an honest one passes, one that carries state between groups is
//! found.

use std::sync::Mutex;

use dpsgd_audit::{Audit, AuditError, Effort, Options, audit};
use dpsgd_privacy::mechanism::{Length, NoiseScale, PhaseConfig, RunConfig, Sampling};
use dpsgd_train::{GroupContext, Inner, InnerAlgorithm, ModelError, PlanConfig};

/// The gradient at the point that a first gradient step leads to, plus a little of what the group before it
/// left if `memory` is there.
#[derive(Debug)]
struct Ahead {
    step: f32,
    memory: Option<Mutex<Vec<f32>>>,
}

impl InnerAlgorithm for Ahead {
    fn name(&self) -> &str {
        "ahead"
    }

    fn run(&self, group: &mut GroupContext<'_>) -> Result<f32, ModelError> {
        group.mean_gradient()?;
        let vectors = group.vectors();
        for (w, g) in vectors.weights.iter_mut().zip(vectors.gradient) {
            *w -= self.step * *g;
        }
        let loss = group.mean_gradient_as_result()?;
        if let Some(memory) = &self.memory {
            let mut memory = memory.lock().unwrap();
            let result = group.vectors().result;
            memory.resize(result.len(), 0.0);
            for (kept, a) in memory.iter_mut().zip(result) {
                *a += 0.5 * *kept;
                *kept = *a;
            }
        }
        Ok(loss)
    }
}

/// Adds one to every coordinate, whatever the samples are.
#[derive(Debug)]
struct Drift;

impl InnerAlgorithm for Drift {
    fn name(&self) -> &str {
        "drift"
    }

    fn run(&self, group: &mut GroupContext<'_>) -> Result<f32, ModelError> {
        let loss = group.mean_gradient_as_result()?;
        group.vectors().result.iter_mut().for_each(|x| *x += 1.0);
        Ok(loss)
    }
}

fn audited(memory: bool, sampling: Sampling, seed: u64) -> Audit {
    let phase = PhaseConfig {
        sampling,
        length: Length::Rounds(10_000),
        noise: NoiseScale::Sigma(0.5),
        filtered: false,
    };
    let mut config = PlanConfig::new(RunConfig::single(phase).check().unwrap(), 0.3, 0.1).with_divisor(20.0);
    config.inner = Inner::custom(Ahead { step: 0.01, memory: memory.then(Mutex::default) }).into();
    let options = Options { effort: Effort::Trials(300), seed: Some(seed), threads: 1, delta: 1e-5 };
    audit(&config.check().unwrap(), &options).unwrap()
}

fn samplings() -> [Sampling; 3] {
    [
        Sampling::Shuffle { samples: 96, groups: 3, group_size: 8 },
        Sampling::Subsample { samples: 100, groups: 8, group_size: 2 },
        Sampling::Poisson { rate: 0.2 },
    ]
}

#[test]
fn an_honest_algorithm_passes() {
    for (seed, sampling) in (1..).zip(samplings()) {
        let audit = audited(false, sampling, seed);
        let failed: Vec<_> = audit.checks.iter().filter(|check| check.failed()).collect();
        assert!(!audit.contradicts(), "{sampling:?}: {failed:?}");
    }
}

#[test]
fn state_that_leaks_between_groups_is_found() {
    for (seed, sampling) in (1..).zip(samplings()) {
        let audit = audited(true, sampling, seed);
        let groups = audit.check("groups").unwrap();
        assert!(groups.failed() && groups.detail.contains("ahead"), "{sampling:?}: {groups:?}");
    }
}

/// An algorithm that the audit cannot tell from wrong noise is refused, not contradicted.
#[test]
fn an_algorithm_that_moves_without_a_gradient_is_refused() {
    let phase = PhaseConfig {
        sampling: samplings()[1],
        length: Length::Rounds(100),
        noise: NoiseScale::Sigma(0.5),
        filtered: false,
    };
    let mut config = PlanConfig::new(RunConfig::single(phase).check().unwrap(), 0.3, 0.1);
    config.inner = Inner::custom(Drift).into();
    let options = Options { effort: Effort::Trials(300), seed: Some(1), threads: 1, delta: 1e-5 };
    let refused = audit(&config.check().unwrap(), &options).unwrap_err();
    assert!(matches!(refused, AuditError::MovesWithoutGradient(ref name) if name == "drift"), "{refused}");
}
