//! What a run says about the shared ledger when it ends.

use std::path::Path;

use dpsgd_report::rounding::up;
use dpsgd_report::text::{number, subscript, wrapped};

use super::{SharedLedger, total};
use crate::facts::Facts;
use crate::settings::Settings;

/// What is and what cannot be known outside of the directory of a run; for its owner.
pub(crate) fn statement(settings: &Settings, facts: &Facts) -> String {
    let said = match SharedLedger::view(&settings.ledger) {
        Ok(Some(ledger)) if facts.run.is_some() => recorded(settings, &ledger),
        _ => {
            "This run is recorded nowhere but in its own directory: an older copy of the directory could be \
              resumed unnoticed, and what other runs on the same data spend is not added up."
                .to_string()
        }
    };
    format!("\nTHE SHARED LEDGER\n{}", wrapped(&said, 2))
}

fn recorded(settings: &Settings, ledger: &SharedLedger) -> String {
    let set = settings.data.set_name();
    let limits = "Runs that are recorded elsewhere or nowhere are not counted, and nobody would notice if \
                  this ledger and the directory of a run were both replaced by older copies.";
    format!("{} {limits}", added_up(&set, settings.budget.delta, ledger))
}

fn added_up(set: &str, delta: f64, ledger: &SharedLedger) -> String {
    let place = place(ledger.path());
    let runs = match ledger.entries() {
        Ok(entries) => entries.into_iter().filter(|entry| entry.data_set == set).collect::<Vec<_>>(),
        Err(error) => return format!("What all runs on {set} spend together is unknown: {error}."),
    };
    let sum = match total(&runs) {
        Ok(sum) => sum,
        Err(error) => return format!("The runs on {set} in {place} cannot be added up: {error}."),
    };
    let seeded = match sum.seeded {
        0 => String::new(),
        1 => " and 1 run with a seed, which has no guarantee,".to_string(),
        many => format!(" and {many} runs with a seed, which have no guarantee,"),
    };
    let runs = if sum.private == 1 { "1 private run" } else { &format!("{} private runs", sum.private) };
    let counted = format!("{runs} on {set}{seeded} recorded in {place}");
    match sum.epsilon(delta) {
        Some(Ok((epsilon, adversary))) if sum.private > 1 => format!(
            "{counted}. Together they are ε ≤ {} at δ = {} against {}.",
            up(epsilon, 6),
            number(delta),
            subscript(adversary)
        ),
        Some(Err(error)) => format!("{counted}. They cannot be added up: {error}."),
        _ => format!("{counted}."),
    }
}

fn place(path: &Path) -> String {
    path.display().to_string()
}
