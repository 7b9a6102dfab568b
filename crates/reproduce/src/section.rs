//! One part of what is written.

use std::path::Path;

use dpsgd::Error;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error;

/// A table or figure of the paper beside ours, in every form in which it is written.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Section {
    /// The heading on the page.
    pub title: String,
    /// The content below it, as HTML.
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

    /// Adds a row: the members of an object that have the columns' names.
    pub fn object(&mut self, row: Value) {
        self.rows.push(row);
    }

    /// The rows as they were given.
    pub fn rows(&self) -> Value {
        Value::Array(self.rows.clone())
    }

    /// A file of this name.
    pub fn file(&self, name: &str) -> Result<(String, String), Error> {
        let header = self.columns.iter().map(|column| column.to_string()).collect();
        let cells = |row: &Value| self.columns.iter().map(|column| cell(&row[*column])).collect();
        let text = csv(name, [header].into_iter().chain(self.rows.iter().map(cells)))?;
        Ok((name.to_string(), text))
    }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Records, the header first, as the content of a CSV file of this name (RFC 4180, lines ending with a
/// newline).
pub fn csv(name: &str, records: impl IntoIterator<Item = Vec<String>>) -> Result<String, Error> {
    let path = Path::new(name);
    let mut writer = csv::Writer::from_writer(Vec::new());
    for record in records {
        writer.write_record(&record).map_err(error::io(path))?;
    }
    let bytes = writer.into_inner().map_err(|failed| error::io(path)(failed.into_error()))?;
    String::from_utf8(bytes).map_err(|failed| error::io(path)(std::io::Error::other(failed)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_quoted_where_they_must_be() {
        let mut table = Csv::new(&["name", "value", "missing"]);
        table.object(json!({ "name": "a, \"b\"", "value": 0.1, "more": 1 }));
        table.object(json!({ "name": "µ = 1", "value": true }));
        let (name, text) = table.file("one.csv").unwrap();
        assert_eq!(name, "one.csv");
        assert_eq!(text, "name,value,missing\n\"a, \"\"b\"\"\",0.1,\nµ = 1,true,\n");
    }
}
