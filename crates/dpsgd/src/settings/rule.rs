//! How the schedules of η and C and the average of w are written: `NAME` or `NAME:VALUE:…`; a schedule may
//! begin with `warmup:SHARE+`.

use dpsgd_train::{Average, Rule, Schedule, Shape};

use super::{SettingsError, number, refuse};

/// How fast `follow-update` moves C, and how far it may move it.
const FOLLOW: (f64, f64) = (0.1, 100.0);

/// Which schedule a rule is for: the one of C knows one rule more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// C.
    Clip,
    /// η.
    Step,
}

/// Reads a rule for a schedule that starts at `start`.
pub(super) fn parse(of: Of, start: f64, written: &str) -> Result<Schedule, SettingsError> {
    let warm = written.strip_prefix("warmup:").map(|rest| rest.split_once('+').unwrap_or((rest, "constant")));
    let (warmup, falling) = match warm {
        Some((share, rest)) => (share.parse().ok(), rest),
        None => (Some(0.0), written),
    };
    let (kind, values) = words(falling);
    let annealed = |shape, end| warmup.map(|warmup| Rule::Annealed { warmup, shape, end });
    let rule = match (kind, values.as_deref(), of) {
        ("constant", Some([]), _) if warm.is_some() => annealed(Shape::Constant, 1.0),
        ("linear", Some([]), _) => annealed(Shape::Linear, 0.0),
        ("linear", Some(&[end]), _) => annealed(Shape::Linear, end),
        ("cosine", Some([]), _) => annealed(Shape::Cosine, 0.0),
        ("cosine", Some(&[end]), _) => annealed(Shape::Cosine, end),
        // The other rules change by epochs or by what was seen, and begin at full size.
        _ if warm.is_some() => None,
        ("constant", Some([]), _) => Some(Rule::Constant),
        ("inverse-root", Some([]), _) => Some(Rule::InverseRoot),
        ("step", Some(&[factor, epochs]), _) if epochs >= 1.0 && epochs.fract() == 0.0 => {
            Some(Rule::Step { factor, epochs: epochs as u64 })
        }
        // The paper's factor.
        ("when-worse", Some([]), _) => Some(Rule::WhenWorse { factor: 0.9 }),
        ("when-worse", Some(&[factor]), _) => Some(Rule::WhenWorse { factor }),
        ("follow-update", Some(&[share]), Of::Clip) => Some(Rule::FollowUpdate {
            share,
            rate: FOLLOW.0,
            lowest: start / FOLLOW.1,
            highest: start * FOLLOW.1,
        }),
        _ => None,
    };
    let Some(rule) = rule else {
        let (name, follow) = match of {
            Of::Clip => ("clip-rule", ", follow-update:SHARE"),
            Of::Step => ("step-rule", ""),
        };
        return refuse(format!(
            "{name} = {written}: constant, inverse-root, step:FACTOR:EPOCHS, when-worse:FACTOR{follow}, \
             linear:END, cosine:END, warmup:SHARE+constant, linear or cosine (for example, step:0.5:10 \
             halves it every ten epochs; warmup:0.1+cosine rises over a tenth of the rounds, then falls)"
        ));
    };
    Ok(Schedule { start, rule })
}

/// A name and the numbers after it.
fn words(written: &str) -> (&str, Option<Vec<f64>>) {
    let mut parts = written.split(':');
    (parts.next().unwrap_or_default(), parts.map(|part| part.parse().ok()).collect())
}

/// Reads which average of w is kept.
pub(super) fn average(written: &str) -> Result<Average, SettingsError> {
    let (kind, values) = words(written);
    match (kind, values.as_deref()) {
        ("none", Some([])) => Ok(Average::None),
        ("ema", Some(&[decay])) if (0.0..1.0).contains(&decay) => Ok(Average::Exponential { decay }),
        ("tail", Some(&[share])) if share > 0.0 && share <= 1.0 => Ok(Average::Tail { share }),
        _ => refuse(format!(
            "average = {written}: none, ema:DECAY with a decay below 1 (ema:0.99 counts about the last \
             hundred rounds), or tail:SHARE with a share of at most 1 (tail:0.5 is the mean over the second \
             half of the rounds)"
        )),
    }
}

/// Writes an average down, so that [`average`] reads it back.
pub(super) fn written_average(average: &Average) -> Option<String> {
    match average {
        Average::None => None,
        Average::Exponential { decay } => Some(format!("ema:{}", number(*decay))),
        Average::Tail { share } => Some(format!("tail:{}", number(*share))),
        // `average` makes no other.
        other => Some(format!("{other:?}")),
    }
}

/// Writes the rule of a schedule down, so that [`parse`] reads it back.
pub(super) fn written(schedule: &Schedule) -> String {
    match schedule.rule {
        Rule::Constant => "constant".to_string(),
        Rule::InverseRoot => "inverse-root".to_string(),
        Rule::Step { factor, epochs } => format!("step:{}:{epochs}", number(factor)),
        Rule::WhenWorse { factor } => format!("when-worse:{}", number(factor)),
        Rule::Annealed { warmup, shape, end } => {
            let warm = if warmup > 0.0 { format!("warmup:{}+", number(warmup)) } else { String::new() };
            let end = if end > 0.0 { format!(":{}", number(end)) } else { String::new() };
            match shape {
                Shape::Linear => format!("{warm}linear{end}"),
                Shape::Cosine => format!("{warm}cosine{end}"),
                _ => format!("{warm}constant"),
            }
        }
        Rule::FollowUpdate { share, .. } => format!("follow-update:{}", number(share)),
        // `parse` makes no other.
        other => format!("{other:?}"),
    }
}

/// "1, constant" or "1 at first, then step:0.5:20".
pub(super) fn described(schedule: &Schedule) -> String {
    let start = number(schedule.start);
    match schedule.rule {
        Rule::Constant => format!("{start}, constant"),
        Rule::Annealed { .. } => format!("{start} at most, {}", written(schedule)),
        _ => format!("{start} at first, then {}", written(schedule)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_or_refused() {
        let step = |text| parse(Of::Step, 2.0, text).map(|schedule| schedule.rule);
        assert_eq!(step("constant").unwrap(), Rule::Constant);
        assert_eq!(step("step:0.5:10").unwrap(), Rule::Step { factor: 0.5, epochs: 10 });
        assert_eq!(step("when-worse").unwrap(), Rule::WhenWorse { factor: 0.9 });
        for wrong in
            ["", "constant:1", "step", "step:0.5", "step:0.5:0.5", "step:x:1", "falling", "follow-update:0.5"]
                .into_iter()
                .chain([
                    "cosine:x",
                    "warmup",
                    "warmup:",
                    "warmup:x+cosine",
                    "warmup:0.1+step:0.5:3",
                    "linear:1:2",
                ])
        {
            assert!(step(wrong).is_err(), "{wrong}");
        }
        assert!(matches!(parse(Of::Clip, 1.0, "follow-update:0.5").unwrap().rule, Rule::FollowUpdate { .. }));
    }

    #[test]
    fn what_is_written_is_read_back() {
        for text in ["constant", "inverse-root", "step:0.1:7", "when-worse:0.9", "follow-update:0.3"]
            .into_iter()
            .chain(["cosine", "cosine:0.01", "linear", "linear:0.1", "warmup:0.1+constant"])
            .chain(["warmup:0.05+cosine", "warmup:0.05+linear:0.2"])
        {
            let schedule = parse(Of::Clip, 0.7, text).unwrap();
            assert_eq!(written(&schedule), text);
            assert_eq!(parse(Of::Clip, 0.7, &written(&schedule)).unwrap(), schedule);
        }
        assert_eq!(
            parse(Of::Step, 1.0, "warmup:0.1").unwrap(),
            parse(Of::Step, 1.0, "warmup:0.1+constant").unwrap()
        );
        for text in ["ema:0.99", "tail:0.5", "ema:0", "tail:1"] {
            assert_eq!(written_average(&average(text).unwrap()).as_deref(), Some(text));
        }
        assert_eq!(written_average(&average("none").unwrap()), None);
        for wrong in ["", "ema", "ema:1", "ema:-0.1", "tail:0", "tail:1.1", "tail:x", "none:1", "swa"] {
            assert!(average(wrong).is_err(), "{wrong}");
        }
    }
}
