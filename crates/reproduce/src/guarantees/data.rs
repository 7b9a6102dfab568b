//! The numbers as CSV and JSON: one line, or object, for each run and printed formula.

use dpsgd::Error;
use dpsgd_privacy::Interval;
use dpsgd_privacy::printed::{Printed, Verdict};
use dpsgd_report::text::number;
use serde_json::{Map, Value, json};

use super::answers::{Answers, Certified};
use super::grid::Row;
use super::summary::{findings, wrong_here};
use super::{ALPHAS, Answered, DELTA};
use crate::section;

/// A value of a line.
pub enum Cell {
    /// A number; may be infinite.
    Number(f64),
    /// A count.
    Whole(u64),
    /// A text.
    Text(String),
    /// Yes or no.
    Truth(bool),
    /// Not known, or not asked.
    Missing,
}

impl Cell {
    fn csv(&self) -> String {
        match self {
            Cell::Number(value) => number(*value),
            Cell::Whole(value) => value.to_string(),
            Cell::Text(text) => text.clone(),
            Cell::Truth(truth) => truth.to_string(),
            Cell::Missing => String::new(),
        }
    }

    /// Infinite numbers are null, as everywhere in our JSON.
    fn json(&self) -> Value {
        match self {
            Cell::Number(value) => json!(value),
            Cell::Whole(value) => json!(value),
            Cell::Text(text) => json!(text),
            Cell::Truth(truth) => json!(truth),
            Cell::Missing => Value::Null,
        }
    }

    fn some(value: Option<f64>) -> Self {
        value.map_or(Cell::Missing, Cell::Number)
    }

    fn words(text: Option<&str>) -> Self {
        text.map_or(Cell::Missing, |text| Cell::Text(text.to_string()))
    }
}

type Line = Vec<(String, Cell)>;

fn lines(answered: &[Answered]) -> Vec<Line> {
    let each = |part: &Answered| -> Vec<Line> {
        let of = |answers: &Answers| -> Vec<Line> {
            answers.printed.iter().map(|form| line(&part.row, answers, form)).collect()
        };
        part.answers.iter().flat_map(of).collect()
    };
    answered.iter().flat_map(each).collect()
}

/// The CSV file of a table.
pub fn table(file: &str, answered: &[Answered]) -> Result<String, Error> {
    let lines = lines(answered);
    let header = lines.first().map(|line| line.iter().map(|(name, _)| name.clone()).collect());
    let records = lines.iter().map(|line| line.iter().map(|(_, cell)| cell.csv()).collect());
    section::csv(file, header.into_iter().chain(records))
}

/// The same lines as objects.
pub fn objects(answered: &[Answered]) -> Value {
    let object = |line: Line| -> Value {
        line.into_iter().map(|(name, cell)| (name, cell.json())).collect::<Map<_, _>>().into()
    };
    lines(answered).into_iter().map(object).collect()
}

/// What was found about each printed formula.
pub fn summary(answered: &[Answered]) -> Value {
    let of = |part: &Answered| -> Vec<Value> {
        let each = findings(part).into_iter().map(|finding| {
            json!({
                "row": part.row.label,
                "source": finding.source,
                "formula": finding.formula,
                "kind": finding.kind,
                "verdict": finding.verdict,
                "refuted": finding.refuted,
            })
        });
        each.collect()
    };
    answered.iter().flat_map(of).collect()
}

fn line(row: &Row, answers: &Answers, form: &Printed) -> Line {
    let mut line = Line::new();
    let mut put = |name: &str, cell: Cell| line.push((name.to_string(), cell));
    let case = &answers.case;
    put("row", Cell::Text(row.label.to_string()));
    put("source", Cell::Text(form.source.to_string()));
    put("formula", Cell::Text(form.formula.clone()));
    put("side", Cell::Text(form.side.to_string()));
    put("adversary", Cell::Text(form.adversary.name().to_string()));
    put("sampling", Cell::Text(case.sampling().to_string()));
    put("samples", Cell::Whole(case.samples));
    put("groups", Cell::Whole(case.groups));
    put("group_size", Cell::Whole(case.group_size));
    put("differing", Cell::Whole(case.differing));
    put("epochs", Cell::Whole(case.epochs));
    put("rounds", Cell::Whole(answers.rounds));
    put("sigma", Cell::Number(case.sigma));
    put("filter", Cell::Truth(case.filtered));
    put("delta", Cell::Number(DELTA));
    put("claimed_epsilon", Cell::Number(form.epsilon));
    put("exact_epsilon_lower", Cell::Number(form.exact.lower));
    put("exact_epsilon_upper", Cell::Number(form.exact.upper));
    let (word, value) = verdict(form);
    put("verdict", Cell::Text(word.to_string()));
    put("verdict_value", Cell::some(value));
    put("note", Cell::words(form.note.as_deref()));
    certified(&mut put, "a1", &answers.known);
    certified(&mut put, "a0", &answers.blind);
    put("a0_group_epsilon_upper", Cell::some(answers.group.map(|group| group.upper)));
    let band = answers.band.as_ref().ok();
    put("f_upper_epsilon", Cell::some(band.map(|band| band.epsilon.0)));
    put("f_lower_epsilon", Cell::some(band.map(|band| band.epsilon.1)));
    for (i, alpha) in ALPHAS.iter().enumerate() {
        put(&format!("f_lower_beta_{alpha}"), Cell::some(band.map(|band| band.beta[i].0)));
        put(&format!("f_upper_beta_{alpha}"), Cell::some(band.map(|band| band.beta[i].1)));
    }
    line
}

fn certified(put: &mut impl FnMut(&str, Cell), who: &str, given: &Result<Certified, String>) {
    let (why, given) = match given {
        Ok(given) => (None, Some(given)),
        Err(why) => (Some(why.as_str()), None),
    };
    let mu = given.and_then(|given| given.mu.as_ref().ok());
    let mut ends = |name: &str, value: Option<Interval>| {
        put(&format!("{who}_{name}_lower"), Cell::some(value.map(|value| value.lower)));
        put(&format!("{who}_{name}_upper"), Cell::some(value.map(|value| value.upper)));
    };
    ends("epsilon", given.map(|given| given.epsilon));
    ends("mu", mu.map(|mu| mu.0));
    for (i, alpha) in ALPHAS.iter().enumerate() {
        ends(&format!("beta_{alpha}"), given.map(|given| given.beta[i]));
    }
    put(&format!("{who}_mu_smallest_rate"), Cell::some(mu.map(|mu| mu.1)));
    let no_mu = given.and_then(|given| given.mu.as_ref().err().map(String::as_str));
    put(&format!("{who}_not_certified"), Cell::words(why.or(no_mu)));
}

/// A word for the verdict, and the factor or the relative error.
fn verdict(form: &Printed) -> (&'static str, Option<f64>) {
    match form.verdict {
        Verdict::Holds { looser_by } => ("holds", Some(looser_by)),
        Verdict::ClaimsTooMuch { by } if wrong_here(form) => ("claims-too-much", Some(by)),
        Verdict::ClaimsTooMuch { by } => ("claims-too-much-at-another-delta", Some(by)),
        Verdict::Approximation { relative_error } => ("approximation", Some(relative_error)),
        _ => ("other", None),
    }
}
