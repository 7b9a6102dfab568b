//! An account as a statement for people: short, certified bounds only, each rounded to its safe side.

use std::fmt::Write;

use dpsgd_privacy::account::{Account, Guarantee, LARGEST_ORDER, ORDERS, Question};
use dpsgd_privacy::mechanism::{BatchSize, Draw, FixedSizes, Mechanism, Neighbours, Phase, SamplingKind};
use dpsgd_privacy::printed::{Side, Verdict};
use dpsgd_privacy::{Adversary, Interval};

use crate::rounding::{down, up};
use crate::text::{number, six_digits, subscript, wrapped};
use crate::{Sizes, detected, reported_alphas};

/// The widths of the label and of the column of A₁.
const LABEL: usize = 44;
const COLUMN: usize = 28;

/// Everything the account says.
///
/// # Guarantee
/// Every bound printed under "WHAT IT LEAKS" is the certified upper end of its interval, rounded up. What is
/// an approximation or a lower bound is called so.
pub fn account(account: &Account, sizes: Sizes) -> String {
    let mut text = trained(account, sizes);
    text.push_str(&beside(account));
    if !account.printed.is_empty() {
        text.push('\n');
        text.push_str(&printed(account));
    }
    text
}

/// The run and its guarantee, without approximations and lower bounds.
pub fn trained(account: &Account, sizes: Sizes) -> String {
    let run = described(&account.mechanism, sizes);
    ["THE RUN\n", &run, "\n", &guarantees(account), "\n", &meaning(account)].concat()
}

/// The settings of a run, one idea per line.
pub fn described(mechanism: &Mechanism, sizes: Sizes) -> String {
    let mut text = String::new();
    let phases = mechanism.phases();
    for (i, phase) in phases.iter().enumerate() {
        if phases.len() > 1 {
            let _ = writeln!(text, "  Phase {} of {}", i + 1, phases.len());
        }
        text.push_str(&described_phase(phase, sizes));
    }
    let g = mechanism.differing();
    let who = if g == 1 { "1 sample is".to_string() } else { format!("up to {g} samples are") };
    let how = match mechanism.neighbours() {
        Neighbours::Substitute => "replaced",
        Neighbours::AddRemove if g == 1 => "added or removed",
        Neighbours::AddRemove => "added or removed, in any combination",
    };
    text.push_str(&item(
        "Neighbours",
        &format!("data sets in which {who} {how} ({}, g = {g})", mechanism.neighbours()),
    ));
    if !mechanism.releases().is_empty() {
        let list: Vec<String> = mechanism.releases().iter().map(|mu| number(*mu)).collect();
        text.push_str(&item(
            "Released",
            &format!(
                "Gaussian mechanisms with µ = {} for one sample{}, included in the guarantee",
                list.join(", "),
                if g == 1 { String::new() } else { format!(", {g} times that for {g}") },
            ),
        ));
    }
    text
}

fn described_phase(phase: &Phase, sizes: Sizes) -> String {
    let mut text = match (phase.sampling().sizes(), phase.sampling().batch()) {
        (Some(sizes), _) => described_batches(phase, sizes),
        (None, BatchSize::Random { rate }) => described_rate(phase, rate, sizes, "individual clipping"),
        (None, BatchSize::Cells { groups, rate }) => {
            let plural = if groups == 1 { "" } else { "s" };
            let clipping = format!("{groups} group{plural} of random size, each clipped as a whole");
            described_rate(phase, rate, sizes, &clipping)
        }
        (None, BatchSize::Fixed { groups, group_size }) => {
            let data = format!("each round uses {groups} groups of {group_size}");
            item("Data", &data) + &item("Sampling", drawn(phase))
        }
    };
    text.push_str(&item(
        "Noise",
        &format!(
            "σ = {} (standard deviation 2Cσ on every coordinate), noise multiplier 2σ = {}",
            number(phase.sigma()),
            number(phase.noise_multiplier())
        ),
    ));
    if phase.filtered() {
        text.push_str(&item("Filter", "each group is kept with probability ½"));
    }
    text
}

/// How a phase draws its samples.
fn drawn(phase: &Phase) -> &'static str {
    match phase.sampling().kind() {
        SamplingKind::Subsample => "subsample: each round draws a fresh batch from all samples",
        SamplingKind::Shuffle => "shuffle: each epoch is a fresh permutation cut into rounds",
        SamplingKind::Poisson => "poisson: each round keeps every sample with the same probability",
        SamplingKind::Allocate => "allocate: in each epoch every sample draws one round at random",
    }
}

/// Rounds of a random size.
fn described_rate(phase: &Phase, rate: f64, sizes: Sizes, clipping: &str) -> String {
    let batch = match sizes.samples {
        Some(samples) => {
            format!("{samples} samples; each round uses {} on average", six_digits(rate * samples as f64))
        }
        None => format!("each round uses a share of {} on average", six_digits(rate)),
    };
    let (rounds, epochs) = (phase.rounds(), six_digits(phase.epochs()));
    let length = match phase.sampling().draw() {
        Draw::EveryRound => format!("{rounds} rounds at rate {}, about {epochs} epochs", six_digits(rate)),
        Draw::EveryEpoch => {
            let per_epoch = phase.sampling().rounds_per_epoch();
            let whole = rounds.is_multiple_of(per_epoch);
            let begun = if whole { "" } else { "; the last epoch counts as a whole one" };
            format!("{epochs} epochs of {per_epoch} rounds = {rounds} rounds{begun}")
        }
    };
    item("Data", &format!("{batch} ({clipping})"))
        + &item("Sampling", drawn(phase))
        + &item("Length", &length)
}

/// Rounds of a fixed number of groups.
fn described_batches(phase: &Phase, sizes: FixedSizes) -> String {
    let FixedSizes { samples, groups, group_size } = sizes;
    let clipping = match (groups, group_size) {
        (_, 1) => "individual clipping",
        (1, _) => "batch clipping",
        _ => "mixed clipping",
    };
    let left = match (samples % sizes.batch(), phase.sampling().draw()) {
        (0, _) => String::new(),
        (left, Draw::EveryEpoch) => {
            format!("; each epoch leaves out {left} of the {samples} samples, chosen at random")
        }
        (left, Draw::EveryRound) => format!("; an epoch is {} draws, not {samples}", samples - left),
    };
    let plural = if groups == 1 { "" } else { "s" };
    let data =
        format!("{samples} samples; each round uses {groups} group{plural} of {group_size} ({clipping})");
    let length = format!(
        "{} epochs of {} rounds = {} rounds{left}",
        six_digits(phase.epochs()),
        phase.sampling().rounds_per_epoch(),
        phase.rounds()
    );
    item("Data", &data) + &item("Sampling", drawn(phase)) + &item("Length", &length)
}

fn item(name: &str, text: &str) -> String {
    let lines = wrapped(text, 13);
    format!("  {name:<10} {}", lines.trim_start())
}

fn guarantees(account: &Account) -> String {
    let mut text = row("WHAT IT LEAKS", "A₁ knows every batch", "A₀ sees the updates only");
    let mut missing = "refused, see below";
    let mut push = |label: &str, show: &dyn Fn(&Guarantee) -> String| {
        let column = |adversary| account.against(adversary).map_or(missing.to_string(), show);
        text.push_str(&row(label, &column(Adversary::A1), &column(Adversary::A0)));
        missing = "–";
    };
    let label = match account.question {
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
    for alpha in reported_alphas(account) {
        let label = format!("  best attack, {} % false alarms: detects ≤", six_digits(100.0 * alpha));
        push(&label, &|given| detected(given, alpha));
    }
    let tau = |given: &Guarantee, order: f64| {
        given.renyi.iter().find(|point| point.0 == order).map(|point| point.1)
    };
    let known = |order: &&f64| account.guarantees.iter().any(|given| tau(given, **order).is_some());
    let orders: Vec<f64> = ORDERS.iter().filter(known).copied().collect();
    if !orders.is_empty() {
        let list: Vec<String> = orders.iter().map(|order| number(*order)).collect();
        push(&format!("  RDP τ at order {}", list.join(", ")), &|given| {
            let value = |&order: &f64| tau(given, order).map_or("–".to_string(), |tau| up(tau.upper, 4));
            orders.iter().map(value).collect::<Vec<_>>().join(", ")
        });
    }
    if account.guarantees.iter().any(|given| given.truncated.is_some()) {
        push(&format!("  tCDP ρ up to order {LARGEST_ORDER}"), &|given| {
            given.truncated.map_or("–".to_string(), |rho| up(rho.upper, 4))
        });
    }
    if let Some(rho) = account.zero_concentrated {
        push("  zCDP ρ (of A₁, so of A₀ as well)", &|_| up(rho, 4));
    }
    if text.contains("RDP") || text.contains("CDP") {
        text.push_str(
            "  RDP, tCDP and zCDP follow from the trade-off function; converting back loses information.\n",
        );
    }
    text
}

fn meaning(account: &Account) -> String {
    let (known, blind) = (account.against(Adversary::A1), account.against(Adversary::A0));
    let mut text = match (known, blind) {
        (Some(known), Some(blind)) if blind.answer.upper <= known.answer.upper => {
            "A₁ knows which samples each round used; A₀ does not. The gap between them is what you gain by \
             keeping batches secret: if the order of the data or the sampler's seed can leak, rely on A₁."
                .to_string()
        }
        (Some(_), Some(_)) => {
            "A₁ knows which samples each round used; A₀ does not. What holds for A₁ holds for \
             A₀ too. Here the bound for A₀ is the larger one, so A₁'s bound is the guarantee for both."
                .to_string()
        }
        _ => String::new(),
    };
    for (adversary, why) in &account.refused {
        let _ = write!(text, "{} is refused: {why}.", subscript(*adversary));
        if *adversary == Adversary::A0 {
            text.push_str(" A₀ knows less than A₁, so A₁'s guarantee holds for A₀ too.");
        }
    }
    let (mean, plain) = account.exposure;
    let _ = write!(
        text,
        "\nExposure: E[c²] = {} against gE = {}; √E[c²] = {:.4}·√(gE).",
        six_digits(mean),
        six_digits(plain),
        (mean / plain).sqrt()
    );
    text.lines().map(|line| wrapped(line, 0)).collect()
}

/// Lower bounds and approximations: useful beside the guarantee, not part of it.
fn beside(account: &Account) -> String {
    let (symbol, asked) = match account.question {
        Question::Epsilon { delta } => ("ε", format!("δ = {}", number(delta))),
        Question::Delta { epsilon } => ("δ", format!("ε = {}", number(epsilon))),
    };
    let mut text = String::new();
    if let Some(floor) = &account.shuffle_floor {
        let forms = [(floor.substitute, "replaced"), (floor.add_remove, "zeroed out, the add/remove form")];
        let forms: Vec<String> = forms
            .iter()
            .filter(|form| form.0 > 0.0)
            .map(|(bound, how)| format!("{symbol} = {} (the sample is {how})", down(*bound, 4)))
            .collect();
        let condition = if floor.left_over_ignored { "If no sample were left out, no" } else { "No" };
        if !forms.is_empty() {
            text.push_str(&wrapped(
                &format!(
                    "Room for improvement against A₀. {condition} analysis can show less than {} at \
                     {asked}. One attack, on the largest update of each epoch, achieves that: a lower \
                     bound, not a guarantee.",
                    forms.join(" or "),
                ),
                0,
            ));
        }
    }
    if let Some(limit) = &account.approximation {
        text.push_str(&wrapped(
            &format!(
                "Approximation, not a guarantee: the paper's limit G_{{c·h(σ)}} for A₀ has µ = {:.4}, \
                 {symbol} = {} at {asked}.",
                limit.mu,
                number(format!("{:.3e}", limit.answer).parse().unwrap_or(limit.answer)),
            ),
            0,
        ));
    }
    text
}

fn printed(account: &Account) -> String {
    let at = account.printed_at.map(|delta| format!("ε AT δ = {}", six_digits(delta))).unwrap_or_default();
    let mut text = format!("THE PAPER'S CLOSED FORMS AS PRINTED (NEVER USED ABOVE), {at}: CLAIMED, EXACT\n");
    let value = |value: f64| if value.is_finite() { format!("{value:.4}") } else { "∞".to_string() };
    for row in &account.printed {
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
        let source = shortened(&row.source, 45);
        let claimed = value(row.epsilon);
        let _ = writeln!(
            text,
            "  {source:<45} {} {sign} {claimed:>9} {exact:>9}  {verdict}",
            subscript(row.adversary)
        );
    }
    text
}

/// Cut at the first comma if it is too long.
fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_string();
    }
    let head = text.split(',').next().unwrap_or(text);
    head.chars().take(most).collect()
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
