//! From the settings to the checked plan of a run: clipping, steps, inner and outer algorithms.

use dpsgd_privacy::mechanism::Mechanism;
use dpsgd_train::{GroupResult, Inner, InnerSequence, Outer, Plan, PlanConfig, Rule, Schedule};

use super::defaults;
use super::settings::{InnerName, InnerResultName, NoiseName, OuterName, TrainSettings};
use crate::Failure;
use crate::settings::{SamplingName, number};

/// As many threads as there are cores.
pub fn all_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Fills in every default of the algorithm and checks the plan.
///
/// # Guarantee
/// As with [`settled`](super::mechanism::settled), the returned settings hold every value the plan was
/// checked with. `mechanism` is the one that is accounted for.
pub fn planned(given: &TrainSettings, mechanism: &Mechanism) -> Result<(TrainSettings, Plan), Failure> {
    let mut settings = given.clone();
    let clip = *settings.clip.get_or_insert(defaults::CLIP);
    let step = *settings.step.get_or_insert(defaults::STEP);
    let clip_rule = settings.clip_rule.get_or_insert_with(|| "constant".into()).clone();
    let usual_rule = if given.step.is_none() { defaults::STEP_RULE } else { "constant" };
    let step_rule = settings.step_rule.get_or_insert_with(|| usual_rule.into()).clone();
    if settings.inner.is_empty() {
        settings.inner = vec![InnerName::Gradient];
    }
    let several = settings.inner.iter().any(|name| *name != InnerName::Gradient);
    if !several {
        for (name, given) in
            [("inner-step", settings.inner_step.is_some()), ("inner-result", settings.inner_result.is_some())]
        {
            if given {
                return Err(Failure::Input(format!(
                    "{name}: only with an --inner algorithm that takes several steps (gradient takes none)"
                )));
            }
        }
    }
    let inner_step = settings.inner_step.unwrap_or(defaults::INNER_STEP);
    let result = settings.inner_result.unwrap_or(InnerResultName::Sum);
    if several {
        settings.inner_step = Some(inner_step);
        settings.inner_result = Some(result);
    }
    let outer = *settings.outer.get_or_insert(OuterName::Momentum);
    if let (Some(momentum), true) = (settings.momentum, outer != OuterName::Momentum) {
        return Err(Failure::Input(format!("momentum = {momentum}: only with --outer momentum")));
    }
    let mut config = PlanConfig::new(mechanism.clone(), clip, step);
    config.clipping = Schedule { start: clip, rule: rule("clip-rule", &clip_rule, Some(clip))? };
    config.step = Schedule { start: step, rule: rule("step-rule", &step_rule, None)? };
    config.inner = InnerSequence::Cycle(settings.inner.iter().map(|name| inner(*name, inner_step)).collect());
    config.result = match result {
        InnerResultName::Sum => GroupResult::SumOfGradients,
        InnerResultName::Difference => GroupResult::ModelDifference,
    };
    config.outer = match outer {
        OuterName::Plain => Outer::Plain,
        OuterName::Momentum => Outer::Momentum {
            momentum: *settings.momentum.get_or_insert(defaults::MOMENTUM),
            nesterov: false,
        },
        OuterName::Adam => Outer::ADAM,
    };
    settings.noise.get_or_insert(NoiseName::Exact);
    config.noise = settings.noise_kind();
    // They cost nothing; what is done with them is up to `--diagnostics`.
    config.diagnostics = true;
    if settings.threads == Some(0) {
        return Err(Failure::Input("threads = 0: at least 1".into()));
    }
    config.threads = settings.threads.unwrap_or(0);
    if let Some(seed) = settings.seed.filter(|seed| i64::try_from(*seed).is_err()) {
        return Err(Failure::Input(format!(
            "seed = {seed}: at most {} (a TOML file holds no more)",
            i64::MAX
        )));
    }
    config.divisor = match settings.sampling {
        Some(SamplingName::Poisson) => settings.groups.map(|groups| groups as f64),
        _ => None,
    };
    let plan = config.check().map_err(|error| Failure::Input(error.to_string()))?;
    Ok((settings, plan))
}

fn inner(name: InnerName, step: f64) -> Inner {
    match name {
        InnerName::Gradient => Inner::Gradient,
        InnerName::Sgd => Inner::Sgd { step },
        InnerName::Momentum => Inner::Momentum { step, momentum: 0.9 },
        InnerName::Adam => Inner::Adam { step, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 },
        InnerName::Adagrad => Inner::AdaGrad { step, epsilon: 1e-10 },
        InnerName::Rmsprop => Inner::RmsProp { step, alpha: 0.99, epsilon: 1e-8 },
    }
}

/// How fast `follow-update` moves C, and how far it may move it.
const FOLLOW: (f64, f64) = (0.1, 100.0);

/// Reads `NAME` or `NAME:VALUE:…`. `clip` is C for the rule that only C may have.
fn rule(name: &str, written: &str, clip: Option<f64>) -> Result<Rule, Failure> {
    let mut parts = written.split(':');
    let kind = parts.next().unwrap_or_default();
    let values: Option<Vec<f64>> = parts.map(|part| part.parse().ok()).collect();
    let values = values.as_deref();
    let rule = match (kind, values, clip) {
        ("constant", Some([]), _) => Some(Rule::Constant),
        ("inverse-root", Some([]), _) => Some(Rule::InverseRoot),
        ("step", Some(&[factor, epochs]), _) if epochs >= 1.0 && epochs.fract() == 0.0 => {
            Some(Rule::Step { factor, epochs: epochs as u64 })
        }
        // The paper's factor.
        ("when-worse", Some([]), _) => Some(Rule::WhenWorse { factor: 0.9 }),
        ("when-worse", Some(&[factor]), _) => Some(Rule::WhenWorse { factor }),
        ("follow-update", Some(&[share]), Some(clip)) => Some(Rule::FollowUpdate {
            share,
            rate: FOLLOW.0,
            lowest: clip / FOLLOW.1,
            highest: clip * FOLLOW.1,
        }),
        _ => None,
    };
    rule.ok_or_else(|| {
        let follow = if clip.is_some() { ", follow-update:SHARE" } else { "" };
        Failure::Input(format!(
            "{name} = {written}: constant, inverse-root, step:FACTOR:EPOCHS, when-worse:FACTOR{follow} (for \
             example step:0.5:10 halves it every ten epochs)"
        ))
    })
}

/// "1, constant".
pub fn described(value: Option<f64>, rule: Option<&String>) -> String {
    let value = value.map(number).unwrap_or_default();
    match rule.map(String::as_str) {
        None | Some("constant") => format!("{value}, constant"),
        Some(rule) => format!("{value} at first, then {rule}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_or_refused() {
        assert_eq!(rule("step-rule", "constant", None).unwrap(), Rule::Constant);
        assert_eq!(rule("step-rule", "step:0.5:10", None).unwrap(), Rule::Step { factor: 0.5, epochs: 10 });
        assert_eq!(rule("step-rule", "when-worse", None).unwrap(), Rule::WhenWorse { factor: 0.9 });
        for wrong in
            ["", "constant:1", "step", "step:0.5", "step:0.5:0.5", "step:x:1", "falling", "follow-update:0.5"]
        {
            assert!(rule("step-rule", wrong, None).is_err(), "{wrong}");
        }
        assert!(matches!(rule("clip-rule", "follow-update:0.5", Some(1.0)), Ok(Rule::FollowUpdate { .. })));
    }
}
