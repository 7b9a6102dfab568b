//! One sentence for each printed formula, over all runs of its row.

use dpsgd_privacy::printed::{Printed, Side, Verdict};
use dpsgd_privacy::{Adversary, Interval};
use dpsgd_report::text::subscript;

use super::Answered;
use super::grid::Case;

/// What was found about one printed formula.
pub struct Remark {
    /// Where it is printed.
    pub source: String,
    /// The formula.
    pub formula: String,
    /// "guarantee, A₁".
    pub kind: String,
    /// Over all runs.
    pub verdict: String,
    /// Whether it is a statement that was refuted.
    pub refuted: bool,
}

/// The findings of one row, in the order in which the formulas are printed.
pub fn findings(answered: &Answered) -> Vec<Remark> {
    let mut formulas: Vec<(&Printed, Vec<(&Case, &Printed)>)> = Vec::new();
    for answers in &answered.answers {
        for form in &answers.printed {
            match formulas.iter_mut().find(|(known, _)| same(known, form)) {
                Some((_, runs)) => runs.push((&answers.case, form)),
                None => formulas.push((form, vec![(&answers.case, form)])),
            }
        }
    }
    let finding = |(form, runs): (&Printed, Vec<(&Case, &Printed)>)| Remark {
        source: form.source.clone(),
        formula: form.formula.clone(),
        kind: format!("{}, {}", form.side, subscript(form.adversary)),
        verdict: over_all(form, &runs),
        refuted: runs.iter().any(|(_, form)| matches!(form.verdict, Verdict::ClaimsTooMuch { .. })),
    };
    formulas.into_iter().map(finding).collect()
}

/// Whether two closed forms are the same formula, for whatever runs. (The source of a lemma differs with
/// the clipping; the formula does not.)
pub fn same(a: &Printed, b: &Printed) -> bool {
    a.formula == b.formula && a.side == b.side
}

/// A₀'s rows of Table 2: theorems, compared with another guarantee and not judged.
fn is_theorem(form: &Printed) -> bool {
    form.adversary == Adversary::A0 && form.side == Side::Guarantee
}

fn over_all(form: &Printed, runs: &[(&Case, &Printed)]) -> String {
    let n = match runs.len() {
        1 => "1 run".to_string(),
        n => format!("{n} runs"),
    };
    if form.side == Side::Approximation {
        return approximation(runs, &n);
    }
    let wrong: Vec<(&Case, &Printed, f64)> = runs
        .iter()
        .filter_map(|(case, form)| match form.verdict {
            Verdict::ClaimsTooMuch { by } => Some((*case, *form, by)),
            _ => None,
        })
        .collect();
    let looser: Vec<f64> = runs
        .iter()
        .filter_map(|(_, form)| match form.verdict {
            Verdict::Holds { looser_by } => Some(looser_by),
            _ => None,
        })
        .collect();
    let silent = looser.iter().filter(|by| by.is_infinite()).count();
    let said: Vec<f64> = looser.into_iter().filter(|by| by.is_finite()).collect();
    let silence = if silent > 0 { format!("; says nothing in {silent}") } else { String::new() };
    let Some(&worst) = wrong.iter().max_by(|a, b| a.2.total_cmp(&b.2)) else {
        let Some((low, high)) = range(&said) else { return format!("holds, but says nothing in any of {n}") };
        let times = times(low, high);
        return match form.side {
            Side::Limit => format!("holds in all {n}; the exact ε is {times} the limit{silence}"),
            _ if is_theorem(form) => format!("a theorem; its ε is {times} our direct bound over {n}"),
            _ => format!("holds in all {n}; its ε is {times} the exact one{silence}"),
        };
    };
    let here = wrong.iter().filter(|(_, form, _)| wrong_here(form)).count();
    let elsewhere = match wrong.len() - here {
        0 => "at δ = 1e-5".to_string(),
        others if here == 0 => format!("not at δ = 1e-5, but in all {others} at other δ"),
        others => format!("{here} at δ = 1e-5, {others} only at other δ"),
    };
    let holds = if said.is_empty() { String::new() } else { format!("; holds in {}", said.len()) };
    let factor = if worst.2.is_finite() {
        format!("by up to a factor {:.4} in ε (at {})", worst.2, worst.0.name())
    } else {
        format!("without bound (at {})", worst.0.name())
    };
    format!("claims more than is true in {} of {n} ({elsewhere}), {factor}{holds}{silence}", wrong.len())
}

/// Whether a refuted form is already wrong at the δ that was asked for.
pub fn wrong_here(form: &Printed) -> bool {
    let Interval { lower, upper } = form.exact;
    match form.side {
        Side::Limit => form.epsilon > upper,
        _ => form.epsilon < lower,
    }
}

fn range(values: &[f64]) -> Option<(f64, f64)> {
    let low = values.iter().copied().min_by(f64::total_cmp)?;
    Some((low, values.iter().copied().max_by(f64::total_cmp)?))
}

fn times(low: f64, high: f64) -> String {
    let (low, high) = (format!("{low:.2}"), format!("{high:.2}"));
    if low == high { format!("{low} times") } else { format!("{low} to {high} times") }
}

fn approximation(runs: &[(&Case, &Printed)], n: &str) -> String {
    let errors = runs.iter().filter_map(|(case, form)| match form.verdict {
        Verdict::Approximation { relative_error } => Some((*case, relative_error)),
        _ => None,
    });
    let mut errors: Vec<(&Case, f64)> = errors.collect();
    errors.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (Some(first), Some(last)) = (errors.first(), errors.last()) else {
        return "approximation, not judged".to_string();
    };
    let end = |(case, error): &(&Case, f64)| format!("{} (at {})", off(*error), case.name());
    if errors.len() == 1 || off(first.1) == off(last.1) {
        return format!("approximation; its ε is {} over {n}", off(first.1));
    }
    format!("approximation; over {n} its ε is between {} and {}", end(first), end(last))
}

/// How far an approximation is off, in words.
pub fn off(error: f64) -> String {
    let direction = if error < 0.0 { "too small" } else { "too large" };
    match error.abs() {
        size if size < 5e-4 => "right to three digits".to_string(),
        size if size < 1.0 => format!("{:.1} % {direction}", 100.0 * size),
        size => format!("a factor {:.1} {direction}", 1.0 + size),
    }
}

/// The verdict on a form for one run, short.
pub fn verdict(form: &Printed) -> String {
    match form.verdict {
        Verdict::ClaimsTooMuch { by } => {
            let place = if wrong_here(form) { "" } else { " at another δ" };
            if by.is_finite() {
                format!("claims too much{place}, ×{by:.4}")
            } else {
                format!("claims too much{place}")
            }
        }
        Verdict::Holds { looser_by } if looser_by.is_infinite() => "says nothing".to_string(),
        Verdict::Holds { looser_by } if is_theorem(form) && looser_by < 0.9995 => {
            format!("holds, below the direct bound, ×{looser_by:.3}")
        }
        Verdict::Holds { looser_by } if looser_by < 1.0005 => "holds, tight".to_string(),
        Verdict::Holds { looser_by } => format!("holds, loose ×{looser_by:.3}"),
        Verdict::Approximation { relative_error } => off(relative_error),
        // Verdicts that are added later speak for themselves.
        other => other.to_string(),
    }
}
