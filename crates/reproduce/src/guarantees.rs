//! Tables "DP" and "DPSGD" of the paper: every printed formula beside the exact numbers, with a verdict.
//!
//! The numbers come from `dpsgd-privacy`: the certified curves of both adversaries, the bounds f^L and
//! f^U, and the closed forms as printed. Here a grid of runs is chosen, and what was found is shown.

mod answers;
mod band;
mod data;
mod figures;
mod grid;
mod show;
mod summary;
#[cfg(test)]
mod tests;

use dpsgd::Error;
use dpsgd_report::html::{list, paragraph};
use rayon::prelude::*;
use serde_json::json;

use self::answers::Answers;
use self::figures::Plotted;
use self::grid::{Case, Row};
use crate::section::Section;
use crate::stated::DELTA;

/// The false-alarm rates at which β is stated.
const ALPHAS: [f64; 2] = [0.01, 0.1];

/// Table "DP": what is printed for adversary A₁, and what is true. `quick` takes few runs and points.
pub fn table1(quick: bool) -> Result<Section, Error> {
    let words = [
        "The paper's Table 1 states trade-off functions h against A₁, who knows which samples each round \
         used. Each formula is evaluated for a grid of runs and judged against the exact trade-off function.",
        "ε is at δ = 1e-5 throughout. The exact values are intervals that are certified to contain the \
         truth, rounded outwards. A printed guarantee is wrong where the exact ε is larger, a printed limit \
         where it is smaller. Both are judged at δ = 1e-5 and at every power of ten from 1e-1 to 1e-12.",
    ];
    section(
        "Table 1: guarantees against A₁",
        "table1.csv",
        &words,
        &grid::table1(quick),
        &figures::table1(quick)?,
    )
}

/// Table "DPSGD": the state of the art against A₀, and the paper's row for A₁. `quick` takes few runs and
/// points.
pub fn table2(quick: bool) -> Result<Section, Error> {
    let words = [
        "The paper's Table 2 is about individual clipping with subsampling. Its first two rows are theorems \
         of the literature against A₀, who sees the updates and not the batches; its third row is the \
         paper's own against A₁. Below them stands the limit for many rounds from the paper's appendix on \
         adversaries.",
        "ε is at δ = 1e-5 throughout. Against A₀ and for g > 1 there are two guarantees: the direct one, \
         from the law of the number of differing samples in a round, and group privacy, from the curve of \
         one sample. Both hold, so the smaller one counts.",
    ];
    section(
        "Table 2: individual clipping with subsampling, A₀ and A₁",
        "table2.csv",
        &words,
        &grid::table2(quick),
        &figures::table2(quick)?,
    )
}

/// A row of the printed table with the answers for its runs.
struct Answered {
    row: Row,
    answers: Vec<Answers>,
}

/// The answers for all rows; a run that belongs to several rows is computed once.
fn answered(rows: &[Row]) -> Result<Vec<Answered>, Error> {
    let mut cases: Vec<Case> = Vec::new();
    for case in rows.iter().flat_map(|row| &row.cases) {
        if !cases.contains(case) {
            cases.push(*case);
        }
    }
    let answers: Vec<Answers> = cases.par_iter().map(Answers::of).collect::<Result<_, Error>>()?;
    let of = |row: &Row| {
        let found = row.cases.iter().filter_map(|case| answers.iter().find(|answers| answers.case == *case));
        let own = found.cloned().map(|mut answers| {
            answers.printed.retain(|form| row.holds(form));
            answers
        });
        Answered { row: row.clone(), answers: own.collect() }
    };
    Ok(rows.iter().map(of).collect())
}

fn section(
    title: &str,
    file: &str,
    words: &[&str],
    rows: &[Row],
    figures: &[Plotted],
) -> Result<Section, Error> {
    let answered = answered(rows)?;
    let mut html: String = words.iter().map(|text| paragraph(text)).collect();
    html.push_str("<h3>What was found</h3>\n");
    html.push_str(&show::summary(&answered));
    html.push_str("<h3>Figures</h3>\n");
    html.push_str(&show::charts(figures));
    html.push_str("<h3>How to read the rows</h3>\n");
    html.push_str(&list(&show::legend()));
    html.extend(answered.iter().map(show::row));
    let mut csv = vec![(file.to_string(), data::table(file, &answered)?)];
    for figure in figures {
        csv.push((figure.file.to_string(), figure.csv()?));
    }
    Ok(Section {
        title: title.to_string(),
        html,
        csv,
        json: json!({
            "delta": DELTA,
            "summary": data::summary(&answered),
            "rows": data::objects(&answered),
            "figures": figures.iter().map(Plotted::json).collect::<Vec<_>>(),
        }),
    })
}
