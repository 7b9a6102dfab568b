//! The rows of a table as text, whatever the format: CSV, Parquet, or an array with one column after the
//! other.

use std::path::Path;

use csv::{ErrorKind, ReaderBuilder, StringRecord, Trim};
use std::io::Read;

use crate::arrays::{self, Pair};
use crate::error::DataError;
use crate::raw;
use crate::schema::Schema;
use crate::source::Source;

/// A field as text; none where the format itself says that there is no value.
pub(crate) type Text = Option<String>;

/// Where a row is, for errors.
pub(crate) enum Place {
    /// A line of a text.
    Line(Option<csv::Position>),
    /// A row, counted from 1.
    Row(u64),
}

impl Place {
    pub(crate) fn error(&self, source: &Source, why: String) -> DataError {
        match self {
            Place::Line(position) => source.line(position.as_ref(), why),
            Place::Row(row) => source.content(format!("row {row}: {why}")),
        }
    }
}

/// One row.
#[derive(Default)]
pub(crate) struct Record {
    text: StringRecord,
    fields: Vec<Text>,
}

impl Record {
    /// A field; none if it has no value.
    pub(crate) fn get(&self, place: usize) -> Option<&str> {
        match self.text.is_empty() {
            true => self.fields[place].as_deref(),
            false => Some(&self.text[place]),
        }
    }
}

/// The rows of a table, one after the other.
pub(crate) struct Records<'a> {
    /// The names of the columns.
    pub(crate) names: Vec<String>,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Csv(Box<csv::Reader<Box<dyn Read + 'a>>>),
    #[cfg(feature = "parquet")]
    Parquet(crate::parquet::Parquet),
    Array(Pair, usize),
}

impl<'a> Records<'a> {
    /// Opens a table. The columns of an array have no names: those of the schema are theirs, in its order.
    pub(crate) fn open(source: &Source<'a>, schema: &Schema, labelled: bool) -> Result<Self, DataError> {
        match ending(source.path).as_deref() {
            Some("npy" | "npz") => Self::array(source, schema, labelled),
            #[cfg(feature = "parquet")]
            Some("parquet" | "pq") => {
                let bytes = match source.bytes {
                    Some(bytes) => bytes.to_vec(),
                    None => raw::read(source.path, raw::MOST_BYTES)?,
                };
                let file = crate::parquet::Parquet::open(source.path, bytes)?;
                Ok(Self { names: file.names.clone(), kind: Kind::Parquet(file) })
            }
            #[cfg(not(feature = "parquet"))]
            Some("parquet" | "pq") => Err(source.content(
                "this build reads no Parquet; build dpsgd-data with the feature `parquet`, or export CSV"
                    .to_string(),
            )),
            _ => Self::csv(source, schema.delimiter()?),
        }
    }

    fn csv(source: &Source<'a>, delimiter: u8) -> Result<Self, DataError> {
        let quirks = source.quirks;
        let mut reader = ReaderBuilder::new()
            .has_headers(quirks.names.is_none())
            .delimiter(delimiter)
            .comment(quirks.comment)
            .trim(Trim::All)
            .from_reader(source.open()?);
        let names = match quirks.names {
            Some(names) => names.iter().map(ToString::to_string).collect(),
            None => {
                let header = reader.headers().map_err(|error| csv_error(source, &error))?;
                header.iter().map(ToString::to_string).collect()
            }
        };
        Ok(Self { names, kind: Kind::Csv(Box::new(reader)) })
    }

    fn array(source: &Source<'a>, schema: &Schema, labelled: bool) -> Result<Self, DataError> {
        let pair = arrays::read(source.path, labelled)?;
        let (name, array) = &pair.inputs;
        let expected = schema.columns.len();
        if array.shape.len() != 2 || array.shape[1] != expected {
            return Err(source.content(format!(
                "array {name}: {}; the schema lists {expected} columns, so it must be (N, {expected})",
                array.said()
            )));
        }
        let rows = array.shape[0];
        if let Some((_, name, targets)) = &pair.targets
            && targets.shape != [rows]
        {
            let why = format!("array {name}: {}; must be ({rows},), one for each row", targets.said());
            return Err(source.content(why));
        }
        let label = labelled.then(|| schema.label.name.clone());
        let names = schema.columns.iter().map(|column| column.name.clone()).chain(label).collect();
        Ok(Self { names, kind: Kind::Array(pair, 0) })
    }

    /// The next row, if there is one, and where it is.
    pub(crate) fn next(&mut self, source: &Source, record: &mut Record) -> Result<Option<Place>, DataError> {
        let fields = self.names.len();
        match &mut self.kind {
            Kind::Csv(reader) => {
                let text = &mut record.text;
                if !reader.read_record(text).map_err(|error| csv_error(source, &error))? {
                    return Ok(None);
                }
                // Without a header the reader itself compares with the first row only.
                if text.len() != fields {
                    let why = format!("{} fields, {fields} columns", text.len());
                    return Err(source.line(text.position(), why));
                }
                Ok(Some(Place::Line(text.position().cloned())))
            }
            #[cfg(feature = "parquet")]
            Kind::Parquet(file) => Ok(file.next(source.path, &mut record.fields)?.map(Place::Row)),
            Kind::Array(pair, row) => {
                let (_, inputs) = &pair.inputs;
                if *row == inputs.shape[0] {
                    return Ok(None);
                }
                let width = inputs.shape[1];
                record.fields.clear();
                record.fields.extend((0..width).map(|column| inputs.numbers.text(*row * width + column)));
                record.fields.extend(pair.targets.iter().map(|(.., targets)| targets.numbers.text(*row)));
                *row += 1;
                Ok(Some(Place::Row(*row as u64)))
            }
        }
    }
}

/// The ending of a file that names its format, in small letters.
pub(crate) fn ending(path: &Path) -> Option<String> {
    path.extension().map(|ending| ending.to_string_lossy().to_lowercase())
}

fn csv_error(source: &Source, error: &csv::Error) -> DataError {
    match error.kind() {
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            source.line(error.position(), format!("{len} fields, {expected_len} columns"))
        }
        ErrorKind::Utf8 { .. } => source.line(error.position(), "not UTF-8".to_string()),
        _ => source.content(error.to_string()),
    }
}
