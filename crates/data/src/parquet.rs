//! Parquet tables, read by the same [`Schema`](crate::schema::Schema) as CSV: each value is taken as the text
//! that a CSV file would hold, so both mean the same to a model.
//!
//! A null is a missing value, and so is NaN, which pandas writes for one. Lists, maps and nested records are
//! refused.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row};

use crate::error::DataError;
use crate::records::Text;

/// What the crate does, as a result: it panics on some damaged files and on types it does not know.
fn guarded<T>(path: &Path, f: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, DataError> {
    let why = match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it is damaged, or holds a type that is not read".to_string(),
    };
    let first = why.lines().next().unwrap_or_default();
    Err(DataError::Content { path: path.to_path_buf(), why: format!("not a whole Parquet file: {first}") })
}

/// A Parquet file in memory.
pub(crate) struct Parquet {
    rows: Box<dyn Iterator<Item = Result<Row, ParquetError>>>,
    /// The names of the columns.
    pub(crate) names: Vec<String>,
    row: u64,
}

impl Parquet {
    pub(crate) fn open(path: &Path, bytes: Vec<u8>) -> Result<Self, DataError> {
        let reader = guarded(path, || SerializedFileReader::new(Bytes::from(bytes)))?;
        let fields = reader.metadata().file_metadata().schema_descr().root_schema().get_fields();
        if let Some(nested) = fields.iter().find(|field| !field.is_primitive()) {
            let why = format!("column {:?} is nested; only plain columns are read", nested.name());
            return Err(DataError::Content { path: path.to_path_buf(), why });
        }
        let names = fields.iter().map(|field| field.name().trim().to_string()).collect();
        let rows = RowIter::from_file_into(Box::new(reader));
        Ok(Self { rows: Box::new(rows), names, row: 0 })
    }

    /// The next row into `fields`, if there is one, and its number from 1 on.
    pub(crate) fn next(&mut self, path: &Path, fields: &mut Vec<Text>) -> Result<Option<u64>, DataError> {
        let Some(row) = guarded(path, || self.rows.next().transpose())? else { return Ok(None) };
        self.row += 1;
        fields.clear();
        for (name, field) in row.get_column_iter() {
            fields.push(text(field).map_err(|kind| DataError::Content {
                path: path.to_path_buf(),
                why: format!(
                    "column {name:?} holds {kind}; only numbers, texts, truth values and dates are read"
                ),
            })?);
        }
        if fields.len() != self.names.len() {
            let why = format!("row {}: {} fields, {} columns", self.row, fields.len(), self.names.len());
            return Err(DataError::Content { path: path.to_path_buf(), why });
        }
        Ok(Some(self.row))
    }
}

/// A value as CSV would hold it; none if it is missing.
fn text(field: &Field) -> Result<Text, &'static str> {
    Ok(match field {
        Field::Null => None,
        Field::Float16(value) if value.is_nan() => None,
        Field::Float(value) if value.is_nan() => None,
        Field::Double(value) if value.is_nan() => None,
        Field::Float16(value) => Some(value.to_string()),
        // The display of a float in Rust is the shortest text that reads as the same number.
        Field::Float(value) => Some(value.to_string()),
        Field::Double(value) => Some(value.to_string()),
        Field::Str(text) => Some(text.trim().to_string()),
        Field::Bool(value) => Some(value.to_string()),
        Field::Byte(value) => Some(value.to_string()),
        Field::Short(value) => Some(value.to_string()),
        Field::Int(value) => Some(value.to_string()),
        Field::Long(value) => Some(value.to_string()),
        Field::UByte(value) => Some(value.to_string()),
        Field::UShort(value) => Some(value.to_string()),
        Field::UInt(value) => Some(value.to_string()),
        Field::ULong(value) => Some(value.to_string()),
        Field::Date(_) | Field::TimestampMillis(_) | Field::TimestampMicros(_) | Field::Decimal(_) => {
            Some(field.to_string())
        }
        Field::Bytes(_) => return Err("bytes"),
        Field::TimeMillis(_) | Field::TimeMicros(_) => return Err("times of day"),
        Field::Group(_) | Field::ListInternal(_) | Field::MapInternal(_) => return Err("nested values"),
    })
}
