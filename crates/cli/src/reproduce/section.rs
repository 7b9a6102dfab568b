//! A part of what `dpsgd reproduce` writes.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A table or figure of the paper beside ours, in the forms in which it is written.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Section {
    /// The heading on the page.
    pub title: String,
    /// What stands below it, as HTML.
    pub html: String,
    /// Files beside the page: name and content.
    pub csv: Vec<(String, String)>,
    /// The same numbers in `reproduce.json`.
    pub json: Value,
}

/// A table of plain numbers.
pub struct Csv {
    columns: Vec<&'static str>,
    rows: Vec<Value>,
}

impl Csv {
    /// With these columns.
    pub fn new(columns: &[&'static str]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// A row: the members of an object that have the columns' names.
    pub fn object(&mut self, row: &Value) {
        self.rows.push(row.clone());
    }

    /// The rows as they were given.
    pub fn rows(&self) -> Value {
        Value::Array(self.rows.clone())
    }

    /// A file of this name.
    pub fn file(&self, name: &str) -> (String, String) {
        let mut text = self.columns.join(",") + "\n";
        for row in &self.rows {
            let cells: Vec<String> = self.columns.iter().map(|column| cell(&row[*column])).collect();
            text.push_str(&(cells.join(",") + "\n"));
        }
        (name.to_string(), text)
    }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => quoted(text),
        other => other.to_string(),
    }
}

/// A text as a field of a CSV file (RFC 4180).
pub fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_string()
    }
}
