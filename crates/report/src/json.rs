//! An account as JSON: one object, infinite numbers as null.

use dpsgd_privacy::Interval;
use dpsgd_privacy::account::{Account, Guarantee, LARGEST_ORDER, Question};
use dpsgd_privacy::mechanism::{BatchSize, Draw, Mechanism, Phase};
use serde_json::{Map, Value, json};

use crate::Sizes;

/// Indented JSON, ending with a newline.
pub fn line(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Both ends of an interval.
pub fn interval(interval: Interval) -> Value {
    json!({ "lower": interval.lower, "upper": interval.upper })
}

/// (α, β) at the false-alarm rates asked for.
pub fn tradeoff(points: &[(f64, Interval)], asked: &[f64]) -> Value {
    let asked = asked.iter().filter_map(|alpha| points.iter().find(|point| point.0 == *alpha));
    asked.map(|&(alpha, beta)| json!({ "alpha": alpha, "beta": interval(beta) })).collect()
}

/// Everything the account says, with the trade-off functions at the false-alarm rates `alphas` as far as the
/// account has them.
pub fn account(account: &Account, sizes: Sizes, alphas: &[f64]) -> Value {
    let refused: Value = account
        .refused
        .iter()
        .map(|(adversary, why)| json!({ "adversary": adversary.name(), "why": why }))
        .collect();
    let quantity = match account.question {
        Question::Epsilon { .. } => "epsilon",
        Question::Delta { .. } => "delta",
    };
    let asked = asked(account.question);
    let floor = account.shuffle_floor.as_ref().map(|floor| {
        let mut value = asked.clone();
        value.insert("quantity".into(), json!(quantity));
        value.insert("add_remove".into(), json!(floor.add_remove));
        value.insert("substitute".into(), json!(floor.substitute));
        value.insert("left_over_ignored".into(), json!(floor.left_over_ignored));
        value
    });
    let approximations: Value = account
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
    let printed: Value = account
        .printed
        .iter()
        .map(|row| {
            json!({
                "source": row.source,
                "formula": row.formula,
                "side": row.side.to_string(),
                "adversary": row.adversary.name(),
                "delta": account.printed_at,
                "epsilon": row.epsilon,
                "exact": interval(row.exact),
                "verdict": row.verdict.to_string(),
                "note": row.note,
            })
        })
        .collect();
    let guarantees: Value =
        account.guarantees.iter().map(|given| guarantee(account, given, alphas)).collect();
    json!({
        "mechanism": mechanism(&account.mechanism, sizes),
        "guarantees": guarantees,
        "refused": refused,
        "exposure": { "mean_square": account.exposure.0, "differing_times_epochs": account.exposure.1 },
        "zcdp": account.zero_concentrated.map(|rho| json!({ "rho": rho })),
        "shuffle_lower_bound": floor,
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

fn guarantee(account: &Account, given: &Guarantee, alphas: &[f64]) -> Value {
    let mut value = Map::new();
    value.insert("adversary".into(), json!(given.adversary.name()));
    value.insert("neighbours".into(), json!(account.mechanism.neighbours().to_string()));
    value.insert("differing".into(), json!(account.mechanism.differing()));
    value.extend(asked(account.question));
    let quantity = match account.question {
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
    value.insert("tradeoff".into(), tradeoff(&given.tradeoff, alphas));
    let renyi = given.renyi.iter().map(|&(order, tau)| json!({ "order": order, "tau": interval(tau) }));
    value.insert("rdp".into(), renyi.collect());
    let truncated =
        given.truncated.map(|rho| json!({ "largest_order": LARGEST_ORDER, "rho": interval(rho) }));
    value.insert("tcdp".into(), json!(truncated));
    value.insert("basis".into(), json!(given.basis));
    value.insert("exact".into(), json!(given.exact));
    Value::Object(value)
}

/// The checked settings of a run.
pub fn mechanism(mechanism: &Mechanism, sizes: Sizes) -> Value {
    let mut value = match mechanism.phases() {
        [phase] => self::phase(phase, sizes),
        phases => {
            let phases: Value =
                phases.iter().map(|phase| Value::Object(self::phase(phase, Sizes::default()))).collect();
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

fn phase(phase: &Phase, sizes: Sizes) -> Map<String, Value> {
    let mut value = Map::new();
    let sampling = phase.sampling();
    value.insert("sampling".into(), json!(sampling.name()));
    let fixed = sampling.sizes();
    if let BatchSize::Random { rate } | BatchSize::Cells { rate, .. } = sampling.batch() {
        match sampling.draw() {
            Draw::EveryRound => value.insert("rate".into(), json!(rate)),
            Draw::EveryEpoch => value.insert("rounds_per_epoch".into(), json!(sampling.rounds_per_epoch())),
        };
    }
    value.insert("samples".into(), json!(fixed.map_or(sizes.samples, |fixed| Some(fixed.samples))));
    value.insert("groups".into(), json!(sampling.groups().or(sizes.groups)));
    value.insert("group_size".into(), json!(sampling.group_size()));
    value.insert("left_over".into(), json!(fixed.map_or(0, |fixed| fixed.samples % fixed.batch())));
    let epochs = phase.epochs();
    let whole = epochs.fract() == 0.0 && epochs < 9e15;
    value.insert("epochs".into(), if whole { json!(epochs as u64) } else { json!(epochs) });
    value.insert("rounds".into(), json!(phase.rounds()));
    value.insert("sigma".into(), json!(phase.sigma()));
    value.insert("noise_multiplier".into(), json!(phase.noise_multiplier()));
    value.insert("filter".into(), json!(phase.filtered()));
    value
}
