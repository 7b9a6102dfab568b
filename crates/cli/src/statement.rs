//! The results as a statement for people: short, certified ends only, every bound rounded to its
//! safe side.

use std::fmt::Write;

use dpsgd_privacy::mechanism::{Neighbours, Phase, Sampling};
use dpsgd_privacy::printed::{Side, Verdict};
use dpsgd_privacy::{Adversary, Interval};

use crate::account::{Guarantee, LARGEST_ORDER, Report};
use crate::rounding::{down, up};
use crate::settings::{Question, Run, number};

/// The widths of the label and of the column of A₁.
const LABEL: usize = 44;
const COLUMN: usize = 28;

/// `dpsgd account`.
pub fn account(report: &Report) -> String {
    let mut text = String::from("THE RUN\n");
    text.push_str(&described(&report.run));
    text.push('\n');
    text.push_str(&guarantees(report));
    text.push('\n');
    text.push_str(&meaning(report));
    text.push_str(&beside(report));
    if !report.printed.is_empty() {
        text.push('\n');
        text.push_str(&printed(report));
    }
    text
}

/// The same about a training run, without what is no guarantee.
pub fn trained(report: &Report) -> String {
    let parts = ["THE RUN\n", &described(&report.run), "\n", &guarantees(report), "\n", &meaning(report)];
    parts.concat()
}

/// The settings, a line for each idea.
pub fn described(run: &Run) -> String {
    let mechanism = &run.mechanism;
    let mut text = String::new();
    let phases = mechanism.phases();
    for (i, phase) in phases.iter().enumerate() {
        if phases.len() > 1 {
            let _ = writeln!(text, "  Phase {} of {}", i + 1, phases.len());
        }
        text.push_str(&described_phase(phase, run.sizes));
    }
    let g = mechanism.differing();
    let who = if g == 1 { "1 sample is".to_string() } else { format!("up to {g} samples are") };
    let how = match mechanism.neighbours() {
        Neighbours::Substitute => "replaced",
        Neighbours::AddRemove => "added or removed",
    };
    text.push_str(&item(
        "Neighbours",
        &format!("data sets in which {who} {how} ({}, g = {g})", mechanism.neighbours()),
    ));
    if !mechanism.releases().is_empty() {
        let list: Vec<String> = mechanism.releases().iter().map(|mu| number(*mu)).collect();
        text.push_str(&item(
            "Released",
            &format!("also, and counted: Gaussian mechanisms with µ = {}", list.join(", ")),
        ));
    }
    text
}

fn described_phase(phase: &Phase, sizes: (Option<u64>, Option<u64>)) -> String {
    let rounds = phase.rounds();
    let epochs = number(rounded(phase.epochs()));
    let (data, drawn, length) = match phase.sampling() {
        Sampling::Subsample { samples, groups, group_size }
        | Sampling::Shuffle { samples, groups, group_size } => {
            let clipping = match (groups, group_size) {
                (_, 1) => "individual clipping",
                (1, _) => "batch clipping",
                _ => "mixed clipping",
            };
            let shuffled = matches!(phase.sampling(), Sampling::Shuffle { .. });
            let batch = groups * group_size;
            let left = match samples % batch {
                0 => String::new(),
                left if shuffled => format!("; every epoch leaves out {left} samples, others each time"),
                left => format!("; an epoch is {left} samples short of {samples}"),
            };
            let plural = if groups == 1 { "" } else { "s" };
            (
                format!(
                    "{samples} samples; a round takes {groups} group{plural} of {group_size} ({clipping})"
                ),
                if shuffled {
                    "shuffle: every epoch is a fresh permutation, cut into rounds"
                } else {
                    "subsample: every round draws a fresh batch from all samples"
                },
                format!(
                    "{epochs} epochs of {} rounds = {rounds} rounds{left}",
                    phase.sampling().rounds_per_epoch()
                ),
            )
        }
        Sampling::Poisson { rate } => {
            let batch = match sizes.0 {
                Some(samples) => format!(
                    "{samples} samples; a round takes {} on average",
                    number(rounded(rate * samples as f64))
                ),
                None => format!("a round takes a share of {} on average", number(rounded(rate))),
            };
            (
                format!("{batch} (individual clipping)"),
                "poisson: every round keeps each sample with the same probability",
                format!("{rounds} rounds at rate {}, about {epochs} epochs", number(rounded(rate))),
            )
        }
    };
    let mut text = item("Data", &data) + &item("Sampling", drawn) + &item("Length", &length);
    text.push_str(&item(
        "Noise",
        &format!(
            "σ = {} (standard deviation 2Cσ on every coordinate), noise multiplier 2σ = {}",
            number(phase.sigma()),
            number(phase.noise_multiplier())
        ),
    ));
    if phase.filtered() {
        text.push_str(&item("Filter", "every group is kept with probability ½ only"));
    }
    text
}

fn item(name: &str, text: &str) -> String {
    let lines = wrapped(text, 13);
    format!("  {name:<10} {}", lines.trim_start())
}

/// Six digits, for values that only describe.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

fn guarantees(report: &Report) -> String {
    let mut text = row("WHAT IT LEAKS", "A₁ knows every batch", "A₀ sees the updates only");
    let mut missing = "refused, see below";
    let mut push = |label: &str, show: &dyn Fn(&Guarantee) -> String| {
        let column = |adversary| report.against(adversary).map_or(missing.to_string(), show);
        text.push_str(&row(label, &column(Adversary::A1), &column(Adversary::A0)));
        missing = "–";
    };
    let label = match report.run.question {
        Question::Epsilon { delta } => format!("  ε at δ = {}, at most", number(delta)),
        Question::Delta { epsilon } => format!("  δ at ε = {}, at most", number(epsilon)),
    };
    push(&label, &|given| up(given.answer.upper, 6));
    push("    certified; width of the interval", &|given| width(given.answer));
    push("  µ of Gaussian DP, at most", &|given| match &given.mu {
        Ok((mu, _)) => up(mu.upper, 6),
        Err(_) => "not certified".to_string(),
    });
    push("    where both error rates are at least", &|given| match &given.mu {
        Ok((_, smallest)) => format!("{smallest:.0e}"),
        Err(_) => "–".to_string(),
    });
    let points = report.guarantees[0].tradeoff.len();
    for i in 0..points {
        let alpha = report.guarantees[0].tradeoff[i].0;
        let label = format!("  best attack at {} % false alarms finds ≤", number(rounded(100.0 * alpha)));
        push(&label, &|given| percent(given.tradeoff[i].1));
    }
    let orders: Vec<String> = report.guarantees[0].renyi.iter().map(|point| number(point.0)).collect();
    if !orders.is_empty() {
        push(&format!("  RDP τ at order {}", orders.join(", ")), &|given| {
            given.renyi.iter().map(|point| up(point.1.upper, 4)).collect::<Vec<_>>().join(", ")
        });
    }
    push(&format!("  tCDP ρ up to order {LARGEST_ORDER}"), &|given| {
        given.truncated.map_or("–".to_string(), |rho| up(rho.upper, 4))
    });
    let rho = up(report.zero_concentrated, 4);
    push("  zCDP ρ (of A₁, so of A₀ as well)", &|_| rho.clone());
    text.push_str("  RDP, tCDP and zCDP follow from the trade-off function; the way back loses.\n");
    text
}

fn meaning(report: &Report) -> String {
    let (known, blind) = (report.against(Adversary::A1), report.against(Adversary::A0));
    let mut text = match (known, blind) {
        (Some(known), Some(blind)) if blind.answer.upper <= known.answer.upper => {
            "A₁ is told which samples every round drew; A₀ has to guess. The difference is what the secrecy of \
             the batches buys: if the order of the data or the seed of the sampler can leak, A₁ is the guarantee."
                .to_string()
        }
        (Some(_), Some(_)) => "A₁ is told which samples every round drew; A₀ has to guess. What holds for A₁ \
             holds for A₀: here the bound for A₀ is the larger one, so A₁'s is the guarantee for both."
            .to_string(),
        _ => String::new(),
    };
    for (adversary, why) in &report.refused {
        let _ = write!(text, "{} is refused: {why}.", subscript(*adversary));
        if *adversary == Adversary::A0 {
            text.push_str(" A₀ knows less than A₁, so what holds for A₁ holds for A₀.");
        }
    }
    let (mean, plain) = report.exposure;
    let _ = write!(
        text,
        "\nExposure: E[c²] = {} against gE = {}; √E[c²] = {:.4}·√(gE).",
        number(rounded(mean)),
        number(rounded(plain)),
        (mean / plain).sqrt()
    );
    text.lines().map(|line| wrapped(line, 0)).collect()
}

/// What stands beside the guarantee and is none.
fn beside(report: &Report) -> String {
    let (symbol, asked) = match report.run.question {
        Question::Epsilon { delta } => ("ε", format!("δ = {}", number(delta))),
        Question::Delta { epsilon } => ("δ", format!("ε = {}", number(epsilon))),
    };
    let mut text = String::new();
    if let Some(floor) = &report.floor {
        let forms =
            [(floor.substitute, "substituted"), (floor.add_remove, "zeroed out, the add/remove form")];
        let forms: Vec<String> = forms
            .iter()
            .filter(|form| form.0 > 0.0)
            .map(|(bound, how)| format!("{symbol} = {} (the sample is {how})", down(*bound, 4)))
            .collect();
        let condition = if floor.left_over_ignored { ", were no sample left out," } else { "" };
        if !forms.is_empty() {
            text.push_str(&wrapped(
                &format!(
                    "How far A₀ could still move: no analysis{condition} can show less than {} at {asked}. It is \
                     what one attack, on the largest update of each epoch, achieves: a lower bound, not a guarantee.",
                    forms.join(" or "),
                ),
                0,
            ));
        }
    }
    if let Some(group) = &report.group {
        let mut said = format!(
            "Group privacy, 1−(1−f)^∘{} of A₀'s curve for one sample:",
            report.run.mechanism.differing()
        );
        if let (Some(epsilon), Some(exact)) = (group.epsilon, report.against(Adversary::A0)) {
            let smaller = if epsilon.upper < exact.answer.upper {
                "which is the smaller guarantee"
            } else {
                "the direct treatment above is smaller"
            };
            let _ = write!(said, " ε at most {} at {asked}; {smaller}.", up(epsilon.upper, 6));
        }
        let list: Vec<String> = group
            .tradeoff
            .iter()
            .map(|&(alpha, beta)| format!("{} at {} %", percent(beta), number(rounded(100.0 * alpha))))
            .collect();
        if !list.is_empty() {
            let _ = write!(said, " Attacks find at most {} false alarms.", list.join(", "));
        }
        text.push_str(&wrapped(&said, 0));
    }
    if let Some(limit) = &report.approximation {
        text.push_str(&wrapped(
            &format!(
                "Approximation, not a guarantee: the paper's limit G_{{c·h(σ)}} for A₀ has µ = {:.4}, {symbol} = {} at {asked}.",
                limit.mu,
                number(format!("{:.3e}", limit.answer).parse().unwrap_or(limit.answer)),
            ),
            0,
        ));
    }
    text
}

fn printed(report: &Report) -> String {
    let at =
        report.printed_at.map(|delta| format!("ε AT δ = {}", number(rounded(delta)))).unwrap_or_default();
    let mut text = format!("THE PAPER'S CLOSED FORMS AS PRINTED (NEVER USED ABOVE), {at}: CLAIMED, EXACT\n");
    let value = |value: f64| if value.is_finite() { format!("{value:.4}") } else { "∞".to_string() };
    for row in &report.printed {
        let sign = match row.side {
            Side::Guarantee => '≤',
            Side::Limit => '≥',
            Side::Approximation => '≈',
        };
        let verdict = match row.verdict {
            Verdict::Holds { looser_by } if looser_by >= 1.005 && looser_by.is_finite() => {
                format!("holds, loose ×{looser_by:.2}")
            }
            Verdict::Holds { looser_by } if looser_by.is_infinite() => "holds, says nothing".to_string(),
            Verdict::Approximation { relative_error } if relative_error.abs() < 10.0 => {
                format!("approximation, {:+.1} %", 100.0 * relative_error)
            }
            Verdict::Approximation { .. } => "approximation, far off".to_string(),
            // Judged at other δ as well as here.
            Verdict::ClaimsTooMuch { .. }
                if row.side == Side::Guarantee && row.epsilon >= row.exact.upper =>
            {
                "holds here, claims too much at another δ".to_string()
            }
            Verdict::ClaimsTooMuch { .. } => "claims more than is true".to_string(),
            other => other.to_string(),
        };
        let exact = value(row.exact.upper);
        let source = shortened(row.source, 45);
        let claimed = value(row.epsilon);
        let _ = writeln!(
            text,
            "  {source:<45} {} {sign} {claimed:>9} {exact:>9}  {verdict}",
            subscript(row.adversary)
        );
    }
    text
}

/// Cut at a comma where it is too long.
fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_string();
    }
    let head = text.split(',').next().unwrap_or(text);
    head.chars().take(most).collect()
}

/// "A₀" or "A₁".
pub fn subscript(adversary: Adversary) -> &'static str {
    match adversary {
        Adversary::A0 => "A₀",
        Adversary::A1 => "A₁",
    }
}

fn row(label: &str, a1: &str, a0: &str) -> String {
    format!("{label:<LABEL$} {a1:<COLUMN$} {a0}\n")
}

fn width(interval: Interval) -> String {
    match interval.width() {
        0.0 => "0".to_string(),
        width if width.is_finite() => format!("{width:.0e}"),
        _ => "∞".to_string(),
    }
}

/// The power 1 − β of the best attack, from the end of β that is guaranteed.
pub fn percent(beta: Interval) -> String {
    format!("{} %", up((100.0 * (1.0 - beta.lower)).min(100.0), 4))
}

/// Lines of at most 100 columns with an indent.
pub fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = String::new();
    let mut line = " ".repeat(indent);
    let mut fresh = true;
    for word in text.split_whitespace() {
        if !fresh && line.chars().count() + 1 + word.chars().count() > 100 {
            lines.push_str(line.trim_end());
            lines.push('\n');
            line = " ".repeat(indent);
            fresh = true;
        }
        if !fresh {
            line.push(' ');
        }
        line.push_str(word);
        fresh = false;
    }
    if !fresh {
        lines.push_str(&line);
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit() {
        let text = wrapped(&"word ".repeat(100), 2);
        assert!(text.lines().all(|line| line.chars().count() <= 100 && line.starts_with("  ")));
    }
}
