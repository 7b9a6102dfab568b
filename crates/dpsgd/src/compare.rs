//! Runs side by side: where their settings differ, what they reached, what they guarantee.

use std::fmt::Write;

use dpsgd_report::html::{self, paragraph, section, wide_table};
use dpsgd_report::rounding::up;
use dpsgd_report::run::{Measurement, compared};
use dpsgd_report::text::{number, subscript, wrapped};
use serde_json::{Value, json};

use crate::run::metrics;
use crate::shared_ledger::{self, Entry, total};
use crate::{Error, SavedRun};

/// Settings that say where things are, not what was done.
const PLACES: [&str; 4] = ["data-dir", "ledger", "threads", "data-set"];

/// Several runs, compared.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Their names: the shortest ends of their paths that tell them apart.
    pub names: Vec<String>,
    /// What differs: a setting and its value in each run.
    pub differing: Vec<(String, Vec<String>)>,
    /// What was measured, epoch by epoch.
    pub measured: Vec<Vec<Measurement>>,
    /// The guarantee of each run, in words.
    pub guarantees: Vec<Vec<String>>,
    /// What all of them leak together.
    pub together: String,
}

impl Comparison {
    /// Reads the runs.
    pub fn of(runs: &[SavedRun]) -> Result<Self, Error> {
        if runs.len() < 2 {
            return Err(Error::Refused("compare: give at least two runs".into()));
        }
        let tables = runs
            .iter()
            .map(|run| toml::Table::try_from(run.raw()).map_err(|error| Error::Refused(error.to_string())))
            .collect::<Result<Vec<_>, _>>()?;
        let mut keys: Vec<&String> = tables.iter().flat_map(toml::Table::keys).collect();
        keys.sort();
        keys.dedup();
        let said = |table: &toml::Table, key: &str| match table.get(key) {
            None => "–".to_string(),
            Some(toml::Value::String(text)) => text.clone(),
            Some(toml::Value::Float(value)) => number(*value),
            Some(toml::Value::Table(_)) => "(a table)".to_string(),
            Some(toml::Value::Array(list)) if list.iter().any(toml::Value::is_table) => {
                "(tables)".to_string()
            }
            Some(other) => other.to_string(),
        };
        let differs = |key: &&&String| {
            !PLACES.contains(&key.as_str())
                && tables.iter().any(|table| table.get(**key) != tables[0].get(**key))
        };
        let differing = keys
            .iter()
            .filter(differs)
            .map(|key| ((*key).clone(), tables.iter().map(|table| said(table, key)).collect()))
            .collect();
        let mut measured = Vec::new();
        let mut guarantees = Vec::new();
        for run in runs {
            measured.push(metrics::read(run.path())?);
            let (settings, facts) = (run.settings()?, run.facts()?);
            let mut words: Vec<String> = run
                .account()?
                .guarantees
                .iter()
                .map(|given| {
                    let (bound, delta) = (up(given.answer.upper, 4), number(settings.budget.delta));
                    format!("ε ≤ {bound} at δ = {delta} against {}", subscript(given.adversary))
                })
                .collect();
            words.extend(facts.note(&settings));
            guarantees.push(words);
        }
        Ok(Self { names: names(runs), differing, measured, guarantees, together: said_together(runs)? })
    }

    /// The rows of a table: a heading and a cell for each run.
    fn rows(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for (name, values) in &self.differing {
            rows.push(std::iter::once(name.clone()).chain(values.clone()).collect());
        }
        let mut row = |name: &str, value: &dyn Fn(&Measurement) -> Option<String>| {
            let cells: Vec<Option<String>> =
                self.measured.iter().map(|epochs| epochs.last().and_then(value)).collect();
            if cells.iter().any(Option::is_some) {
                let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "–".to_string()));
                rows.push(std::iter::once(name.to_string()).chain(cells).collect());
            }
        };
        row("epochs done", &|last| Some(number((100.0 * last.epoch).round() / 100.0)));
        row("test accuracy", &|last| last.test_accuracy.map(|share| format!("{:.2} %", 100.0 * share)));
        row("test AUC", &|last| last.two_classes.as_ref().map(|two| format!("{:.4}", two.auc)));
        row("test loss", &|last| last.test_loss.is_finite().then(|| format!("{:.4}", last.test_loss)));
        let most = self.guarantees.iter().map(Vec::len).max().unwrap_or(0);
        for i in 0..most {
            let heading = if i == 0 { "guarantee" } else { "" };
            let cells = self.guarantees.iter().map(|words| words.get(i).cloned().unwrap_or_default());
            rows.push(std::iter::once(heading.to_string()).chain(cells).collect());
        }
        rows
    }

    /// For people: runs beside each other while they fit into `columns`, below each other otherwise.
    pub fn statement(&self, columns: usize) -> String {
        let mut rows = self.rows();
        rows.insert(0, std::iter::once(String::new()).chain(self.names.clone()).collect());
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..=self.names.len()).map(width).collect();
        let mut text = String::new();
        let line = |text: &mut String, cells: &[(&String, usize)]| {
            let cells: Vec<String> = cells.iter().map(|&(cell, width)| format!("{cell:width$}")).collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        };
        if widths.iter().sum::<usize>() + 2 * self.names.len() <= columns {
            for row in &rows {
                line(&mut text, &row.iter().zip(widths.iter().copied()).collect::<Vec<_>>());
            }
        } else {
            for run in 1..=self.names.len() {
                let _ = writeln!(text, "{}", rows[0][run]);
                for row in rows.iter().skip(1).filter(|row| !row[run].is_empty()) {
                    text.push_str("  ");
                    line(&mut text, &[(&row[0], widths[0]), (&row[run], 0)]);
                }
            }
        }
        text.push('\n');
        text.push_str(&wrapped(&self.together, 0));
        text
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let run = |i: usize| {
            let last = self.measured[i].last();
            let settings: serde_json::Map<String, Value> =
                self.differing.iter().map(|(name, values)| (name.clone(), json!(values[i]))).collect();
            json!({
                "run": self.names[i],
                "settings": settings,
                "test_accuracy": last.and_then(|last| last.test_accuracy),
                "test_auc": last.and_then(|last| last.two_classes.as_ref()).map(|two| two.auc),
                "test_loss": last.map(|last| last.test_loss),
                "epsilon": last.map(|last| last.epsilon),
                "delta": last.map(|last| last.delta),
                "guarantee": self.guarantees[i],
            })
        };
        let runs: Vec<Value> = (0..self.names.len()).map(run).collect();
        json!({ "runs": runs, "together": self.together })
    }

    /// A page with the table and the curves over each other.
    pub fn html(&self) -> String {
        let header: Vec<String> = std::iter::once(String::new()).chain(self.names.clone()).collect();
        let curves: Vec<(String, Vec<Measurement>)> =
            self.names.iter().cloned().zip(self.measured.iter().cloned()).collect();
        let mut body = "<h1>Runs side by side</h1>\n".to_string();
        body.push_str(&section(
            "Settings that differ, and what came of it",
            &wide_table(&header, &self.rows()),
        ));
        body.push_str(&section("Curves", &html::figures(&compared(&curves))));
        body.push_str(&section("Together", &paragraph(&self.together)));
        html::page("Runs side by side", &body, "Measured on the public test set.")
    }
}

/// The shortest ends of the paths that tell the runs apart.
fn names(runs: &[SavedRun]) -> Vec<String> {
    let parts: Vec<Vec<String>> = runs
        .iter()
        .map(|run| {
            run.path().components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect()
        })
        .collect();
    let longest = parts.iter().map(Vec::len).max().unwrap_or(1);
    for length in 1..=longest {
        let ends: Vec<String> =
            parts.iter().map(|parts| parts[parts.len().saturating_sub(length)..].join("/")).collect();
        let mut sorted = ends.clone();
        sorted.sort();
        sorted.dedup();
        if sorted.len() == ends.len() {
            return ends;
        }
    }
    runs.iter().map(|run| run.path().display().to_string()).collect()
}

/// What several runs leak together, in words.
///
/// # Guarantee
/// The ε is that of [`total`]: the composition of the curves of the runs that are on the same data, as their
/// ledgers charged them. Runs on different data are not added up. Where one was chosen by a private selection
/// no sum is stated: what it released depends on more than its own rounds.
pub(crate) fn said_together(runs: &[SavedRun]) -> Result<String, Error> {
    let mut sets: Vec<(String, Vec<Entry>, f64)> = Vec::new();
    for run in runs {
        let settings = run.settings()?;
        if run.facts()?.selection.is_some() {
            return Ok(format!(
                "{} was chosen privately from several tries, which its own curve does not cover, so nothing is \
                 added up here. The shared ledger has every try: dpsgd ledger states the sum of all that was \
                 trained.",
                run.path().display()
            ));
        }
        let mut entry = shared_ledger::entry(&settings, "", run.path());
        entry.charged = run.ledger(&settings)?.charged;
        let delta = settings.budget.delta;
        match sets.iter_mut().find(|(name, ..)| *name == entry.data_set) {
            Some((_, entries, known)) => {
                entries.push(entry);
                *known = known.max(delta);
            }
            None => sets.push((entry.data_set.clone(), vec![entry], delta)),
        }
    }
    let mut words = Vec::new();
    for (name, entries, delta) in &sets {
        let sum = total(entries)?;
        let seeded = match sum.seeded {
            0 => String::new(),
            1 => " 1 run has a seed: it is reproducible and not private.".to_string(),
            many => format!(" {many} runs have a seed: they are reproducible and not private."),
        };
        words.push(match sum.epsilon(*delta) {
            Some(epsilon) => {
                let (epsilon, adversary) = epsilon?;
                let bound =
                    format!("ε ≤ {} at δ = {} against {}", up(epsilon, 4), number(*delta), subscript(adversary));
                match sum.private {
                    1 => format!("1 private run on {name}: {bound}.{seeded}"),
                    many => format!(
                        "{many} private runs on {name}: whoever sees all of them, or the one that was chosen by \
                         looking at them, faces {bound} (their curves composed, not their ε added).{seeded}"
                    ),
                }
            }
            None => format!("No run on {name} is private.{seeded}"),
        });
    }
    Ok(words.join(" "))
}
