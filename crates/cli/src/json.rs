//! The results as JSON: one object, infinite numbers as null.

use dpsgd_privacy::Interval;
use dpsgd_privacy::mechanism::{Phase, Sampling};
use serde_json::{Map, Value, json};

use crate::account::{Guarantee, LARGEST_ORDER, Report};
use crate::settings::{Question, Run};

/// One object on lines of its own.
pub fn line(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Both ends.
pub fn interval(interval: Interval) -> Value {
    json!({ "lower": interval.lower, "upper": interval.upper })
}

/// (α, β) for the false-alarm rates that were asked for.
pub fn tradeoff(points: &[(f64, Interval)], asked: &[f64]) -> Value {
    let asked = asked.iter().filter_map(|alpha| points.iter().find(|point| point.0 == *alpha));
    asked.map(|&(alpha, beta)| json!({ "alpha": alpha, "beta": interval(beta) })).collect()
}

/// `dpsgd account --json`.
pub fn account(report: &Report) -> Value {
    let run = &report.run;
    let refused: Value = report
        .refused
        .iter()
        .map(|(adversary, why)| json!({ "adversary": adversary.name(), "why": why }))
        .collect();
    let quantity = match run.question {
        Question::Epsilon { .. } => "epsilon",
        Question::Delta { .. } => "delta",
    };
    let asked = asked(run.question);
    let floor = report.floor.as_ref().map(|floor| {
        let mut value = asked.clone();
        value.insert("quantity".into(), json!(quantity));
        value.insert("add_remove".into(), json!(floor.add_remove));
        value.insert("substitute".into(), json!(floor.substitute));
        value.insert("left_over_ignored".into(), json!(floor.left_over_ignored));
        value
    });
    let group = report.group.as_ref().map(|group| {
        let mut value = Map::new();
        value.insert("adversary".into(), json!("A0"));
        value.insert("differing".into(), json!(run.mechanism.differing()));
        value.extend(asked.clone());
        value.insert("epsilon".into(), group.epsilon.map_or(Value::Null, interval));
        value.insert("tradeoff".into(), tradeoff(&group.tradeoff, &run.alphas));
        value.insert("basis".into(), json!("1 − (1−f)^{∘g} of the curve of one differing sample"));
        value
    });
    let approximations: Value = report
        .approximation
        .iter()
        .map(|limit| {
            let mut value = asked.clone();
            value.insert("formula".into(), json!("G_{c·h(σ)}, c = (m/N)·√T"));
            value.insert("adversary".into(), json!("A0"));
            value.insert("mu".into(), json!(limit.mu));
            value.insert(quantity.into(), json!(limit.answer));
            value.insert("note".into(), json!("approximation, not a guarantee"));
            Value::Object(value)
        })
        .collect();
    let printed: Value = report
        .printed
        .iter()
        .map(|row| {
            json!({
                "source": row.source,
                "formula": row.formula,
                "side": row.side.to_string(),
                "adversary": row.adversary.name(),
                "delta": report.printed_at,
                "epsilon": row.epsilon,
                "exact": interval(row.exact),
                "verdict": row.verdict.to_string(),
                "note": row.note,
            })
        })
        .collect();
    json!({
        "mechanism": mechanism(run),
        "guarantees": report.guarantees.iter().map(|given| guarantee(run, given)).collect::<Value>(),
        "refused": refused,
        "exposure": { "mean_square": report.exposure.0, "differing_times_epochs": report.exposure.1 },
        "zcdp": { "rho": report.zero_concentrated },
        "shuffle_lower_bound": floor,
        "group_privacy": group,
        "approximations": approximations,
        "as_printed": printed,
    })
}

fn asked(question: Question) -> Map<String, Value> {
    let (name, value) = match question {
        Question::Epsilon { delta } => ("delta", delta),
        Question::Delta { epsilon } => ("epsilon", epsilon),
    };
    Map::from_iter([(name.to_string(), json!(value))])
}

fn guarantee(run: &Run, given: &Guarantee) -> Value {
    let mut value = Map::new();
    value.insert("adversary".into(), json!(given.adversary.name()));
    value.insert("neighbours".into(), json!(run.mechanism.neighbours().to_string()));
    value.insert("differing".into(), json!(run.mechanism.differing()));
    value.extend(asked(run.question));
    let quantity = match run.question {
        Question::Epsilon { .. } => "epsilon",
        Question::Delta { .. } => "delta",
    };
    value.insert(quantity.into(), interval(given.answer));
    match &given.mu {
        Ok((mu, smallest)) => {
            value.insert("mu".into(), interval(*mu));
            value.insert("mu_range".into(), json!({ "smallest": smallest }));
            if !mu.upper.is_finite() {
                value.insert("mu_why".into(), json!("the run hides nothing: no finite µ can be certified"));
            }
        }
        Err(why) => {
            value.insert("mu".into(), Value::Null);
            value.insert("mu_why".into(), json!(why));
        }
    }
    value.insert("tradeoff".into(), tradeoff(&given.tradeoff, &run.alphas));
    let renyi = given.renyi.iter().map(|&(order, tau)| json!({ "order": order, "tau": interval(tau) }));
    value.insert("rdp".into(), renyi.collect());
    let truncated =
        given.truncated.map(|rho| json!({ "largest_order": LARGEST_ORDER, "rho": interval(rho) }));
    value.insert("tcdp".into(), json!(truncated));
    value.insert("basis".into(), json!(given.basis));
    Value::Object(value)
}

/// The checked settings of a run.
pub fn mechanism(run: &Run) -> Value {
    let mechanism = &run.mechanism;
    let mut value = match mechanism.phases() {
        [phase] => self::phase(phase, run.sizes),
        phases => {
            let phases: Value =
                phases.iter().map(|phase| Value::Object(self::phase(phase, (None, None)))).collect();
            let rounds: u64 = mechanism.phases().iter().map(Phase::rounds).sum();
            let mut value = Map::new();
            value.insert("rounds".into(), json!(rounds));
            value.insert("phases".into(), phases);
            value
        }
    };
    value.insert("neighbours".into(), json!(mechanism.neighbours().to_string()));
    value.insert("differing".into(), json!(mechanism.differing()));
    value.insert("releases".into(), json!(mechanism.releases()));
    Value::Object(value)
}

fn phase(phase: &Phase, sizes: (Option<u64>, Option<u64>)) -> Map<String, Value> {
    let mut value = Map::new();
    let sampling = phase.sampling();
    value.insert("sampling".into(), json!(sampling.name()));
    match sampling {
        Sampling::Subsample { samples, groups, group_size }
        | Sampling::Shuffle { samples, groups, group_size } => {
            value.insert("samples".into(), json!(samples));
            value.insert("groups".into(), json!(groups));
            value.insert("group_size".into(), json!(group_size));
            value.insert("left_over".into(), json!(samples % (groups * group_size)));
        }
        Sampling::Poisson { rate } => {
            value.insert("rate".into(), json!(rate));
            value.insert("samples".into(), json!(sizes.0));
            value.insert("groups".into(), json!(sizes.1));
            value.insert("group_size".into(), json!(1));
            value.insert("left_over".into(), json!(0));
        }
    }
    let epochs = phase.epochs();
    let whole = epochs.fract() == 0.0 && epochs < 9e15;
    value.insert("epochs".into(), if whole { json!(epochs as u64) } else { json!(epochs) });
    value.insert("rounds".into(), json!(phase.rounds()));
    value.insert("sigma".into(), json!(phase.sigma()));
    value.insert("noise_multiplier".into(), json!(phase.noise_multiplier()));
    value.insert("filter".into(), json!(phase.filtered()));
    value
}
