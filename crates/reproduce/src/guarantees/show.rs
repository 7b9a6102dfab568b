//! The tables as HTML.

use dpsgd_privacy::Interval;
use dpsgd_privacy::printed::{Printed, Side};
use dpsgd_report::html::{escape, paragraph};
use dpsgd_report::rounding::{down, up};
use dpsgd_report::text::{number, subscript};

use super::answers::{Answers, Certified};
use super::figures::Plotted;
use super::summary::{findings, same, verdict};
use super::{ALPHAS, Answered};

/// Digits of the exact numbers.
const DIGITS: i32 = 5;

/// One line for each printed formula.
pub fn summary(answered: &[Answered]) -> String {
    let header = ["Printed", "Formula", "Over the grid"].map(str::to_string);
    let lines = answered.iter().flat_map(findings).map(|finding| {
        vec![format!("{} ({})", finding.source, finding.kind), finding.formula, finding.verdict]
    });
    let refuted = "claims more than is true";
    let marked = format!("<td class=\"warning\">{refuted}");
    table(&header, &lines.collect::<Vec<_>>()).replace(&format!("<td>{refuted}"), &marked)
}

/// The figures, two in a row where there is room.
pub fn charts(figures: &[Plotted]) -> String {
    let cells: String = figures.iter().map(|figure| figure.drawn().html(false)).collect();
    format!("<div class=\"charts\">\n{cells}</div>\n")
}

/// What the columns of the rows mean.
pub fn legend() -> Vec<String> {
    [
        "ε, A₁ and ε, A₀: certified lower and upper end at δ = 1e-5 against the adversary who knows the \
         batches and against the one who does not. For g > 1 A₀'s ends enclose the direct bound, not the \
         least ε that is true: group privacy can be smaller, and then it counts.",
        "ε, A₀, in g steps: group privacy from ε and δ of one sample, (gε, δ·(e^{gε}−1)/(e^ε−1)). The form \
         of Table 2, 1 − (1−f)^{∘g}, uses the whole curve and is never larger.",
        "µ, A₁: the smallest µ with f ≥ G_µ wherever both error rates are at least 1e-6 (or a smaller rate \
         where the run leaks more; the CSV says which), rounded up.",
        "ε, fᵁ to fᴸ: the same ε from the paper's bounds fᴸ ≤ f ≤ fᵁ with exact tails and the best cᴸ and \
         cᵁ.",
        "β: the miss rate of the best attack against A₁'s curve at that false-alarm rate, as fᴸ ≤ f ≤ fᵁ.",
        "Claimed: ≤ is a printed guarantee, ≥ a printed limit, ≈ an approximation. ×1.03 at \"claims too \
         much\" is the factor between the exact and the claimed ε, at \"loose\" the inverse factor.",
        "\"At another δ\": true at δ = 1e-5 and false at some other δ; the note in the CSV says at which.",
    ]
    .map(str::to_string)
    .to_vec()
}

/// One row of the printed table.
pub fn row(answered: &Answered) -> String {
    let row = &answered.row;
    let mut html = format!("<h3>{}: {}</h3>\n", escape(row.label), escape(row.conditions));
    html.push_str(&format!("<p>As printed: {}.</p>\n", escape(row.formula)));
    html.push_str(&paragraph(row.remark));
    html.push_str(&exact(&answered.answers));
    html.push_str(&claims(answered));
    html
}

fn exact(all: &[Answers]) -> String {
    let blind = all.iter().any(|answers| answers.blind.is_ok());
    let groups = all.iter().any(|answers| answers.group.is_some());
    let sampled = all.iter().any(|a| a.case.shuffled) && all.iter().any(|a| !a.case.shuffled);
    let mut header: Vec<String> = ["Run", "N", "m", "s", "g", "E", "σ"].map(str::to_string).to_vec();
    if sampled {
        header.insert(1, "Sampling".into());
    }
    header.push("ε, A₁".into());
    if blind {
        header.push(if groups { "ε, A₀, direct".into() } else { "ε, A₀".into() });
    }
    if groups {
        header.push("ε, A₀, in g steps".into());
    }
    header.extend(["µ, A₁".into(), "ε, fᵁ to fᴸ".into()]);
    header.extend(ALPHAS.map(|alpha| format!("β at α = {}", number(alpha))));
    let line = |(i, answers): (usize, &Answers)| {
        let case = &answers.case;
        let mut cells = vec![(i + 1).to_string()];
        if sampled {
            cells.push(case.sampling().to_string());
        }
        cells.extend(
            [case.samples, case.groups, case.group_size, case.differing, case.epochs].map(|n| n.to_string()),
        );
        cells.push(number(case.sigma));
        cells.push(answers.known.as_ref().map_or("not certified".into(), |given| ends(given.epsilon)));
        if blind {
            cells.push(answers.blind.as_ref().map_or("as A₁".into(), |given| ends(given.epsilon)));
        }
        if groups {
            cells.push(answers.group.map_or("–".into(), |group| format!("≤ {}", up(group.upper, DIGITS))));
        }
        cells.push(match &answers.known {
            Ok(Certified { mu: Ok((mu, _)), .. }) => up(mu.upper, DIGITS),
            _ => "not certified".to_string(),
        });
        cells.push(answers.band.as_ref().map_or("not certified".into(), |band| {
            format!("{} to {}", down(band.epsilon.0, DIGITS), up(band.epsilon.1, DIGITS))
        }));
        cells.extend((0..ALPHAS.len()).map(|i| misses(answers, i)));
        cells
    };
    let mut html = table(&header, &all.iter().enumerate().map(line).collect::<Vec<_>>());
    let mut reasons: Vec<String> = Vec::new();
    for answers in all {
        let blind = answers.blind.as_ref().err().map(|why| {
            format!(
                "For A₀ nothing is certified separately ({why}). A₀ knows less than A₁: what holds for \
                A₁ holds for A₀."
            )
        });
        let known = answers.known.as_ref().err().map(|why| format!("A₁ is not certified: {why}."));
        let band = answers.band.as_ref().err().map(|why| format!("fᴸ and fᵁ are not certified: {why}."));
        for reason in [blind, known, band].into_iter().flatten() {
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
    }
    html.extend(reasons.iter().map(|reason| paragraph(reason)));
    html
}

fn ends(value: Interval) -> String {
    format!("[{}, {}]", down(value.lower, DIGITS), up(value.upper, DIGITS))
}

/// fᴸ ≤ f ≤ fᵁ, the guaranteed end of f.
fn misses(answers: &Answers, i: usize) -> String {
    match (&answers.known, &answers.band) {
        (Ok(known), Ok(band)) => {
            let (lower, upper) = band.beta[i];
            format!("{} ≤ {} ≤ {}", down(lower, 3), down(known.beta[i].lower, 3), up(upper, 3))
        }
        (Ok(known), Err(_)) => down(known.beta[i].lower, 3),
        _ => "not certified".to_string(),
    }
}

/// The claims of a row: a line for each run, a column for each formula.
fn claims(answered: &Answered) -> String {
    let mut forms: Vec<&Printed> = Vec::new();
    for form in answered.answers.iter().flat_map(|answers| &answers.printed) {
        if !forms.iter().any(|known| same(known, form)) {
            forms.push(form);
        }
    }
    let mut header = vec!["Run".to_string()];
    header.extend(
        forms.iter().map(|form| format!("{}, {}: {}", form.side, subscript(form.adversary), form.formula)),
    );
    let line = |(i, answers): (usize, &Answers)| {
        let mut cells = vec![(i + 1).to_string()];
        cells.extend(forms.iter().map(|form| {
            let found = answers.printed.iter().find(|other| same(form, other));
            found.map_or("–".to_string(), |form| {
                format!("{} {}: {}", sign(form.side), claimed(form.epsilon), verdict(form))
            })
        }));
        cells
    };
    table(&header, &answered.answers.iter().enumerate().map(line).collect::<Vec<_>>())
}

fn sign(side: Side) -> char {
    match side {
        Side::Guarantee => '≤',
        Side::Limit => '≥',
        Side::Approximation => '≈',
    }
}

/// A claim is not a guarantee of ours: the nearest number.
fn claimed(epsilon: f64) -> String {
    if !epsilon.is_finite() {
        return "∞".to_string();
    }
    let rounded = format!("{epsilon:.*e}", (DIGITS - 1) as usize).parse().unwrap_or(epsilon);
    number(rounded)
}

/// A table of many narrow columns.
fn table(header: &[String], rows: &[Vec<String>]) -> String {
    let line = |tag: &str, cells: &[String]| -> String {
        let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let (head, body) = (line("th", header), rows.iter().map(|row| line("td", row)).collect::<String>());
    let style = "font-size:.78rem;line-height:1.35";
    format!(
        "<div style=\"overflow-x:auto\"><table style=\"{style}\">\n<thead>{head}</thead>\n\
         <tbody>\n{body}</tbody>\n</table></div>\n",
    )
}
