//! What a sweep found: a row for each run, and what all of them leak together.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use dpsgd_report::html::{self, paragraph, section, wide_table};
use dpsgd_report::rounding::up;
use dpsgd_report::run::{Measurement, compared};
use dpsgd_report::text::{number, wrapped};
use dpsgd_train::directory::write_atomically;
use serde_json::{Value, json};

use super::grid::Point;
use crate::compare::said_together;
use crate::run::metrics;
use crate::{Error, SavedRun};

/// The table of a sweep.
pub const CSV: &str = "sweep.csv";
/// Its page.
pub const PAGE: &str = "sweep.html";

/// A finished run of a sweep.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// What varied.
    pub values: Vec<(String, String)>,
    /// Where it is.
    pub directory: PathBuf,
    /// What was measured, epoch by epoch.
    pub measured: Vec<Measurement>,
}

impl Row {
    /// The last measurement.
    pub fn last(&self) -> Option<&Measurement> {
        self.measured.last()
    }

    /// What was found, for people.
    pub fn said(&self) -> String {
        let Some(last) = self.last() else { return "nothing was measured".to_string() };
        let mut text = String::new();
        if let Some(accuracy) = last.test_accuracy {
            let _ = write!(text, "accuracy {:.2} %, ", 100.0 * accuracy);
        }
        if let Some(two) = &last.two_classes {
            let _ = write!(text, "AUC {:.3}, ", two.auc);
        }
        if last.test_loss.is_finite() {
            let _ = write!(text, "loss {:.4}, ", last.test_loss);
        }
        let _ = write!(text, "ε ≤ {}", up(last.epsilon, 4));
        text
    }
}

/// Reads a finished run.
pub(super) fn row(point: &Point, directory: &Path) -> Result<Row, Error> {
    Ok(Row {
        name: point.name.clone(),
        values: point.values.clone(),
        directory: directory.to_path_buf(),
        measured: metrics::read(directory)?,
    })
}

/// What a sweep found.
#[derive(Clone, Debug)]
pub struct Swept {
    /// The finished runs.
    pub rows: Vec<Row>,
    /// How many there will be.
    pub planned: usize,
    /// What all runs leak together, those that were begun and not finished included.
    pub together: String,
}

impl Swept {
    /// Adds up, and writes the table and the page.
    ///
    /// # Guarantee
    /// Every run of `begun` is added up, as its ledger charged it: whoever watches a sweep sees the metrics of a
    /// run that was stopped, too, and what is given up for being bad has been looked at.
    pub(super) fn of(out: &Path, rows: Vec<Row>, begun: &[PathBuf], planned: usize) -> Result<Self, Error> {
        let runs = begun.iter().map(|run| SavedRun::open(run)).collect::<Result<Vec<_>, _>>()?;
        let swept = Self { together: said_together(&runs)?, rows, planned };
        let write = |name: &str, text: String| {
            let path = out.join(name);
            write_atomically(&path, text.as_bytes()).map_err(Error::io(&path))
        };
        write(CSV, swept.csv())?;
        write(PAGE, swept.html())?;
        Ok(swept)
    }

    fn columns(&self) -> Vec<String> {
        self.rows
            .first()
            .map(|row| row.values.iter().map(|(name, _)| name.clone()).collect())
            .unwrap_or_default()
    }

    /// One line for each run.
    pub fn csv(&self) -> String {
        let quoted = |text: &str| match text.contains([',', '"', '\n']) {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text.to_string(),
        };
        let mut text = String::new();
        for name in self.columns() {
            let _ = write!(text, "{},", quoted(&name));
        }
        text.push_str("test_accuracy,test_auc,test_loss,epsilon,delta,adversary,private,directory\n");
        let given = |value: Option<f64>| value.filter(|x| x.is_finite()).map(number).unwrap_or_default();
        for row in &self.rows {
            for (_, value) in &row.values {
                let _ = write!(text, "{},", quoted(value));
            }
            let last = row.last();
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{},{}",
                given(last.and_then(|last| last.test_accuracy)),
                given(last.and_then(|last| last.two_classes.as_ref()).map(|two| two.auc)),
                given(last.map(|last| last.test_loss)),
                given(last.map(|last| last.epsilon)),
                given(last.map(|last| last.delta)),
                last.map_or("", |last| &last.adversary),
                last.is_some_and(|last| last.private),
                quoted(&row.directory.display().to_string())
            );
        }
        text
    }

    /// The table and the curves over each other.
    pub fn html(&self) -> String {
        let header: Vec<String> = ["run", "found"].iter().map(ToString::to_string).collect();
        let rows: Vec<Vec<String>> = self.rows.iter().map(|row| vec![row.name.clone(), row.said()]).collect();
        let curves: Vec<(String, Vec<Measurement>)> =
            self.rows.iter().map(|row| (row.name.clone(), row.measured.clone())).collect();
        let mut body = "<h1>A sweep</h1>\n".to_string();
        body.push_str(&paragraph(&format!("{} of {} runs are finished.", self.rows.len(), self.planned)));
        body.push_str(&section("What the search leaks", &paragraph(&self.together)));
        body.push_str(&section("Runs", &wide_table(&header, &rows)));
        body.push_str(&section("Curves", &html::figures(&compared(&curves))));
        html::page("A sweep", &body, "Measured on the public test set.")
    }

    /// For people.
    pub fn statement(&self) -> String {
        let mut text = String::new();
        let width = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        for row in &self.rows {
            let _ = writeln!(text, "{:width$}  {}", row.name, row.said());
        }
        if self.rows.len() < self.planned {
            let _ = writeln!(
                text,
                "{} of {} runs are finished; repeat the command to go on",
                self.rows.len(),
                self.planned
            );
        }
        text.push_str("\nWHAT THE SEARCH LEAKS\n");
        text.push_str(&wrapped(&self.together, 2));
        text
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                let values: serde_json::Map<String, Value> =
                    row.values.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
                let last = row.last();
                json!({
                    "run": row.name,
                    "settings": values,
                    "directory": row.directory,
                    "test_accuracy": last.and_then(|last| last.test_accuracy),
                    "test_auc": last.and_then(|last| last.two_classes.as_ref()).map(|two| two.auc),
                    "test_loss": last.map(|last| last.test_loss),
                    "epsilon": last.map(|last| last.epsilon),
                    "delta": last.map(|last| last.delta),
                    "adversary": last.map(|last| last.adversary.clone()),
                    "private": last.is_some_and(|last| last.private),
                })
            })
            .collect();
        json!({ "runs": rows, "planned": self.planned, "together": self.together })
    }
}
