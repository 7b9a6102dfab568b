//! The page of a coordinator, and the figures it shares with a simulation's.

use dpsgd::report::chart::{Axis, Chart, Dash, Marker, Scale, Series, Stroke};
use dpsgd::report::html::{self, Figure};
use dpsgd::report::text::{number, thousands};

use crate::status::Status;
use crate::terms::{Agreed, Combine, Rule, ServerOuter, Staleness};
use crate::timeline::Measured;

const PLOT: (f64, f64) = (390.0, 240.0);
/// Rows of the table of clients.
pub(crate) const MOST_ROWS: usize = 200;

fn line(points: Vec<(f64, f64)>, colour: usize) -> Series {
    let marker = (points.len() <= 30).then_some(Marker::Circle);
    Series { label: String::new(), points, stroke: Stroke { colour, dash: Dash::Solid, width: 1.8, marker } }
}

fn chart(title: &str, x: Axis, y: Axis, series: Vec<Series>) -> Chart {
    Chart { title: title.into(), subtitle: None, x, y, series, bands: Vec::new() }
}

/// The page of a coordinator: accuracy, progress, staleness, and the share of each client.
pub fn coordinator(terms: &Agreed, status: &Status, timeline: &[Measured]) -> String {
    let said: Vec<String> = status.statement().lines().map(str::to_string).collect();
    let clock = Clock::of(timeline);
    let body = format!(
        "<h1>{}</h1>\n{}{}{}{}{}{}",
        html::escape(&terms.name),
        html::list(&said),
        html::section("Over time", &html::figures(&over_time(timeline, clock))),
        html::section("Staleness and shares", &html::figures(&[staleness(status), shares(status)])),
        html::section("Clients", &clients(status)),
        html::section("Terms", &html::table(&[], &described(terms, &[]))),
        html::section("What this page is", &html::list(&WHAT_IT_IS.map(str::to_string))),
    );
    html::page(&terms.name, &body, "The coordinator's view.")
}

const WHAT_IT_IS: [&str; 3] = [
    "Everything here is computed from noised updates, from public numbers and from the coordinator's clock: it \
     adds nothing to what the updates revealed.",
    "The privacy of each client is stated in the report of its own run, which it can show or keep. It does not \
     rest on this coordinator.",
    "When each update arrived, and from whom, is known to the coordinator.",
];

/// The unit of the time axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// What stands on the axis.
    pub unit: &'static str,
    /// Seconds of the unit.
    pub seconds: f64,
}

impl Clock {
    /// Seconds of a simulation.
    pub const VIRTUAL: Self = Self { unit: "virtual seconds", seconds: 1.0 };

    /// Seconds, minutes, hours or days, by the length of the run.
    pub fn of(timeline: &[Measured]) -> Self {
        let last = timeline.last().map_or(0.0, |last| last.seconds);
        let units = [("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)];
        let found = units.into_iter().find(|(_, seconds)| last >= 2.0 * seconds);
        let (unit, seconds) = found.unwrap_or(("seconds", 1.0));
        Self { unit, seconds }
    }
}

/// Accuracy (or loss, where there is none), updates, and how stale they were, over time.
pub fn over_time(timeline: &[Measured], clock: Clock) -> Vec<Figure> {
    let mut figures: Vec<Figure> = accuracy(timeline, clock).into_iter().collect();
    figures.push(progress(timeline, clock));
    figures.extend(staleness_over_time(timeline, clock));
    figures
}

fn points(timeline: &[Measured], clock: Clock, value: impl Fn(&Measured) -> Option<f64>) -> Vec<(f64, f64)> {
    timeline.iter().filter_map(|at| Some((at.seconds / clock.seconds, value(at)?))).collect()
}

/// A figure over time, from zero or over the range of its values; `None` without a point.
fn drawn(
    (title, label, colour): (&str, &str, usize),
    points: Vec<(f64, f64)>,
    (clock, from_zero): (Clock, bool),
    caption: String,
) -> Option<Figure> {
    if points.is_empty() {
        return None;
    }
    let x = Axis::from_zero(clock.unit, points.iter().map(|point| point.0));
    let y = match from_zero {
        true => Axis::from_zero(label, points.iter().map(|point| point.1)),
        false => Axis { label: label.into(), scale: Scale::Linear, range: None },
    };
    Some(Figure::new(&chart(title, x, y, vec![line(points, colour)]), PLOT, caption))
}

fn accuracy(timeline: &[Measured], clock: Clock) -> Option<Figure> {
    let share = points(timeline, clock, |at| at.accuracy.map(|accuracy| 100.0 * accuracy));
    if share.is_empty() {
        let loss = points(timeline, clock, |at| at.loss);
        let said = "The global model on the public test set.".to_string();
        return drawn(("Test loss", "loss", 0), loss, (clock, false), said);
    }
    let last = share.last().map_or(0.0, |last| last.1);
    let said = format!("The global model on the public test set: {last:.2} % at the end.");
    drawn(("Test accuracy", "accuracy, %", 0), share, (clock, false), said)
}

fn progress(timeline: &[Measured], clock: Clock) -> Figure {
    let folded = points(timeline, clock, |at| Some(at.updates as f64));
    let rejected = points(timeline, clock, |at| Some(at.rejected as f64));
    let x = Axis::from_zero(clock.unit, folded.iter().map(|point| point.0));
    let y = Axis::from_zero("updates", folded.iter().chain(&rejected).map(|point| point.1));
    let mut series = vec![line(folded, 2)];
    let mut caption = "Updates that passed every check of the server.".to_string();
    if rejected.iter().any(|point| point.1 > 0.0) {
        let mut others = line(rejected, 1);
        (series[0].label, others.label) = ("folded".into(), "rejected".into());
        others.stroke.dash = Dash::Dashed;
        series.push(others);
        caption = "Updates that passed every check of the server, and those that did not.".into();
    }
    Figure::new(&chart("Updates folded", x, y, series), PLOT, caption)
}

fn staleness_over_time(timeline: &[Measured], clock: Clock) -> Option<Figure> {
    let mean = points(timeline, clock, |at| at.staleness);
    let said = "Versions between an update's base and its fold: the mean so far.".to_string();
    drawn(("Mean staleness", "versions", 1), mean, (clock, true), said)
}

/// The distribution of staleness.
pub fn staleness(status: &Status) -> Figure {
    let shares = &status.staleness.shares;
    let points: Vec<_> = shares.iter().map(|&(staleness, share)| (staleness as f64, 100.0 * share)).collect();
    let x = Axis::from_zero("versions between base and fold", points.iter().map(|point| point.0));
    let y =
        Axis { label: "updates at most as stale, %".into(), scale: Scale::Linear, range: Some((0.0, 100.0)) };
    let drawn = chart("Staleness", x, y, vec![line(points, 1)]);
    let mean = status.staleness.mean.unwrap_or(0.0);
    Figure::new(&drawn, PLOT, format!("The mean is {mean:.2}."))
}

/// How much each client contributed.
pub fn shares(status: &Status) -> Figure {
    let total = status.updates_applied.max(1) as f64;
    let mut shares: Vec<f64> =
        status.members.iter().map(|member| 100.0 * member.applied as f64 / total).collect();
    shares.sort_by(|a, b| b.total_cmp(a));
    let points: Vec<_> = shares.iter().enumerate().map(|(i, share)| (i as f64 + 1.0, *share)).collect();
    let x = Axis::from_zero("clients, most updates first", points.iter().map(|point| point.0));
    let y = Axis::from_zero("share of all updates, %", points.iter().map(|point| point.1));
    let drawn = chart("Share of each client", x, y, vec![line(points, 3)]);
    Figure::new(&drawn, PLOT, "Accepted updates of each client, as a share of all.")
}

fn clients(status: &Status) -> String {
    let header = ["client", "next round", "accepted", "share", "rejected"];
    let total = status.updates_applied.max(1) as f64;
    let rows = status.members.iter().take(MOST_ROWS).map(|member| {
        let rejected: Vec<String> =
            member.rejected.iter().map(|(why, count)| format!("{count} {why}")).collect();
        vec![
            member.id.to_string(),
            thousands(member.round),
            thousands(member.applied),
            format!("{:.1} %", 100.0 * member.applied as f64 / total),
            if rejected.is_empty() { "none".into() } else { rejected.join(", ") },
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let shown = html::wide_table(&header.map(str::to_string), &rows);
    shown + &and_more(status.members.len())
}

pub(crate) fn and_more(clients: usize) -> String {
    match clients.saturating_sub(MOST_ROWS) {
        0 => String::new(),
        more => html::paragraph(&format!("… and {} more.", thousands(more as u64))),
    }
}

/// The terms in words, name and value, with more rows after the run.
pub fn described(terms: &Agreed, more: &[(&str, String)]) -> Vec<Vec<String>> {
    let rule = match terms.rule {
        Rule::EachUpdate => "each update is a step: w ← w − η·c(τ)·Ū/m".to_string(),
        Rule::Buffer { size, combine } => match combine {
            Combine::Mean => format!("every {size} updates are a step: their weighted sum divided by {size}"),
            Combine::TrimmedMean { trim } => {
                format!("every {size} updates are a step: their mean without the {trim} smallest and largest")
            }
            Combine::Median => format!("every {size} updates are a step: their median"),
        },
    };
    let weight = match terms.weight {
        Staleness::Constant => "c(τ) = 1".to_string(),
        Staleness::Polynomial { power } => format!("c(τ) = (1 + τ)^−{power}"),
    };
    let outer = match terms.outer {
        ServerOuter::Plain => "plain".to_string(),
        ServerOuter::Momentum { momentum, .. } => format!("momentum {momentum}"),
        ServerOuter::Adam { .. } => "adam".to_string(),
    };
    let honest = terms.honest();
    let (shortest, longest, coordinate) = (honest.shortest, honest.longest, honest.coordinate);
    let said = format!("‖Ū/m‖ between {shortest:.4} and {longest:.4}, coordinates up to {coordinate:.4}");
    let false_alarms = format!("at most 3·e^−{} for each honest update", number(terms.bounds.tail));
    let mut rows = vec![("Run", terms.run().to_string())];
    rows.extend_from_slice(more);
    rows.extend([
        ("Parameters", thousands(terms.dimension)),
        ("Rule", rule),
        ("Weight", weight),
        ("Server's optimizer", outer),
        ("η", number(terms.step.start)),
        ("Largest staleness", thousands(terms.max_staleness)),
        ("An honest update", said),
        ("False rejections", false_alarms),
    ]);
    rows.into_iter().map(|(name, value)| vec![name.to_string(), value]).collect()
}
