//! Tables: CSV with a header, read as a [`Schema`] says.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use csv::{ErrorKind, ReaderBuilder, StringRecord, Trim};

use crate::dataset::{Dataset, Inputs, Split, Targets};
use crate::error::{DataError, setting};
use crate::raw;
use crate::schema::{CategorySource, Column, Encoding, Plan, RangeSource, Schema, Unlisted};

/// Where the test samples come from. A rule on row numbers is public and fixed, so replacing one row
/// changes one sample of one of the two sets.
#[derive(Clone, Debug, PartialEq)]
pub enum TestRows {
    /// A file of their own.
    File(PathBuf),
    /// The last rows: this fraction of all, rounded down, at least one.
    Last(f64),
    /// Every k-th row.
    Every(usize),
}

/// How a file departs from CSV with a header.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quirks {
    /// The names of the columns of a file without a header.
    pub(crate) names: Option<&'static [&'static str]>,
    /// A line that starts with it is a comment.
    pub(crate) comment: Option<u8>,
    /// A full stop at the end of a label is not part of it.
    pub(crate) label_stop: bool,
}

/// Reads a table, zipped or not. Column names and fields are trimmed; fields may be quoted.
///
/// Every row becomes numbers by itself, whatever the other rows hold, as long as
/// [`Schema::uncovered`] is empty.
pub fn load(train: &Path, test: &TestRows, schema: &Schema) -> Result<Split, DataError> {
    let quirks = Quirks::default();
    let resolved = resolve(train, schema, quirks)?;
    let plan = Plan::of(&resolved)?;
    let rows = read(raw::open(train)?.0, train, &plan, quirks)?;
    let (train, test) = match test {
        TestRows::File(path) => (rows, read(raw::open(path)?.0, path, &plan, quirks)?),
        TestRows::Last(fraction) => {
            if !(*fraction > 0.0 && *fraction < 1.0) {
                return setting("test fraction", fraction, "above 0 and below 1", "both sets need samples");
            }
            let test = ((rows.len() as f64 * fraction) as usize).max(1);
            let train = rows.len().saturating_sub(test);
            rows.parted(&plan, |row| row >= train)?
        }
        TestRows::Every(step) => {
            if *step < 2 {
                return setting("every k-th row", step, "k at least 2", "both sets need samples");
            }
            rows.parted(&plan, |row| row % step == step - 1)?
        }
    };
    Ok(Split { train: train.dataset(&plan)?, test: test.dataset(&plan)? })
}

/// The rows of a table as numbers.
#[derive(Default)]
pub(crate) struct Rows {
    values: Vec<f32>,
    /// A class's place, or a value from 0 to 1.
    targets: Vec<f64>,
}

impl Rows {
    fn len(&self) -> usize {
        self.targets.len()
    }

    fn parted(self, plan: &Plan, is_test: impl Fn(usize) -> bool) -> Result<(Self, Self), DataError> {
        let (mut train, mut test) = (Self::default(), Self::default());
        for (row, (values, target)) in
            self.values.chunks_exact(plan.features()).zip(&self.targets).enumerate()
        {
            let part = if is_test(row) { &mut test } else { &mut train };
            part.values.extend_from_slice(values);
            part.targets.push(*target);
        }
        if train.len() == 0 || test.len() == 0 {
            let given = format!("{} for training, {} for testing", train.len(), test.len());
            return setting("rows", given, "at least one each", "a file without test rows is divided");
        }
        Ok((train, test))
    }

    pub(crate) fn dataset(self, plan: &Plan) -> Result<Dataset, DataError> {
        let targets = match &plan.label.1 {
            Encoding::Categories(classes) => Targets::Classes {
                labels: self.targets.iter().map(|place| *place as u32).collect(),
                classes: classes.len(),
            },
            Encoding::Range { .. } => {
                Targets::Values(self.targets.iter().map(|value| *value as f32).collect())
            }
        };
        let set = Dataset::new(Inputs::Floats(self.values), targets, [1, 1, plan.features()])?;
        Ok(set.with_numeric(plan.numeric()))
    }
}

/// The reader and the names of its columns.
fn reader<R: Read>(
    input: R,
    path: &Path,
    delimiter: u8,
    quirks: Quirks,
) -> Result<(csv::Reader<R>, Vec<String>), DataError> {
    let mut reader = ReaderBuilder::new()
        .has_headers(quirks.names.is_none())
        .delimiter(delimiter)
        .comment(quirks.comment)
        .trim(Trim::All)
        .from_reader(input);
    let names = match quirks.names {
        Some(names) => names.iter().map(ToString::to_string).collect(),
        None => {
            let header = reader.headers().map_err(|error| line_error(path, &error))?;
            header.iter().map(ToString::to_string).collect()
        }
    };
    Ok((reader, names))
}

/// Where each column of the file is, checked against what is wanted.
fn places(path: &Path, names: &[String], wanted: &[&str]) -> Result<Vec<usize>, DataError> {
    let content = |why| DataError::Content { path: path.to_path_buf(), why };
    let place = |wanted: &&str| {
        let mut places = (0..names.len()).filter(|place| names[*place] == **wanted);
        match (places.next(), places.next()) {
            (Some(place), None) => Ok(place),
            (Some(_), Some(_)) => Err(content(format!("two columns are named {wanted:?}"))),
            (None, _) => {
                let names: Vec<String> = names.iter().take(50).map(|name| shown(name)).collect();
                let names = names.join(", ");
                Err(content(format!(
                    "no column {wanted:?}; the first line must be a header, it has: {names}"
                )))
            }
        }
    };
    wanted.iter().map(place).collect()
}

/// Reads rows as a checked schema says.
pub(crate) fn read(input: impl Read, path: &Path, plan: &Plan, quirks: Quirks) -> Result<Rows, DataError> {
    let (mut reader, names) = reader(input, path, plan.delimiter, quirks)?;
    let wanted: Vec<&str> = plan.columns.iter().chain([&plan.label]).map(|(name, _)| name.as_str()).collect();
    let places = places(path, &names, &wanted)?;
    if let Some(name) =
        names.iter().find(|name| !wanted.contains(&name.as_str()) && !plan.ignore.contains(*name))
    {
        let why = format!("column {} has no meaning in the schema; describe it or ignore it", shown(name));
        return Err(DataError::Content { path: path.to_path_buf(), why });
    }
    let mut rows = Rows::default();
    let mut record = StringRecord::new();
    while advance(&mut reader, &mut record, path, names.len())? {
        let line = record.position().map_or(0, csv::Position::line);
        let error = |why| DataError::Line { path: path.to_path_buf(), line, why };
        for ((name, encoding), place) in plan.columns.iter().zip(&places) {
            let at = rows.values.len();
            rows.values.resize(at + encoding.width(), 0.0);
            match value(encoding, &record[*place], plan).map_err(|why| error(format!("{name}: {why}")))? {
                Value::Unit(unit) => rows.values[at] = unit as f32,
                Value::Place(place) => rows.values[at + place] = 1.0,
                Value::Missing => {
                    if let Encoding::Range { .. } = encoding {
                        rows.values[at] = 0.5;
                    }
                }
            }
        }
        let (name, encoding) = &plan.label;
        // `places` has one for each of `wanted`, the label last.
        let mut field = &record[places[plan.columns.len()]];
        if quirks.label_stop {
            field = field.strip_suffix('.').unwrap_or(field);
        }
        rows.targets.push(
            match value(encoding, field, plan).map_err(|why| error(format!("{name}: {why}")))? {
                Value::Unit(unit) => unit,
                Value::Place(place) => place as f64,
                Value::Missing => {
                    return Err(error(format!(
                        "{name}: the label is missing or not in the list; every sample has one"
                    )));
                }
            },
        );
    }
    if rows.len() == 0 {
        return Err(DataError::Content { path: path.to_path_buf(), why: "no rows".to_string() });
    }
    Ok(rows)
}

/// The next record, if there is one.
fn advance<R: Read>(
    reader: &mut csv::Reader<R>,
    record: &mut StringRecord,
    path: &Path,
    fields: usize,
) -> Result<bool, DataError> {
    let more = reader.read_record(record).map_err(|error| line_error(path, &error))?;
    // Without a header the reader itself compares with the first row only.
    if more && record.len() != fields {
        let line = record.position().map_or(0, csv::Position::line);
        let why = format!("{} fields, {fields} columns", record.len());
        return Err(DataError::Line { path: path.to_path_buf(), line, why });
    }
    Ok(more)
}

fn line_error(path: &Path, error: &csv::Error) -> DataError {
    let (path, line) = (path.to_path_buf(), error.position().map_or(1, csv::Position::line));
    match error.kind() {
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            DataError::Line { path, line, why: format!("{len} fields, {expected_len} columns") }
        }
        ErrorKind::Utf8 { .. } => DataError::Line { path, line, why: "not UTF-8".to_string() },
        _ => DataError::Content { path, why: error.to_string() },
    }
}

/// Text from a file in quotes, on one line and not too long: a lost quote can make a field of half a file.
fn shown(text: &str) -> String {
    let start: String = text.chars().take(40).collect();
    format!("{start:?}{}", if start.len() < text.len() { "…" } else { "" })
}

enum Value {
    Unit(f64),
    Place(usize),
    Missing,
}

fn number(field: &str) -> Result<f64, String> {
    field
        .parse()
        .ok()
        .filter(|value: &f64| value.is_finite())
        .ok_or_else(|| format!("{} is not a number", shown(field)))
}

fn value(encoding: &Encoding, field: &str, plan: &Plan) -> Result<Value, String> {
    match encoding {
        // A category may be written like a missing value: the list decides.
        Encoding::Categories(places) => match places.get(field) {
            Some(place) => Ok(Value::Place(*place)),
            None if plan.missing.contains(field) || plan.unlisted == Unlisted::Zero => Ok(Value::Missing),
            None => Err(format!(
                "{} is not in the list of categories; add it, or (for a column, not for the label) set unlisted = \"zero\" in [schema]",
                shown(field)
            )),
        },
        Encoding::Range { .. } if plan.missing.contains(field) => Ok(Value::Missing),
        Encoding::Range { low, width } => Ok(Value::Unit(((number(field)? - low) / width).clamp(0.0, 1.0))),
    }
}

/// The schema with everything that is to come from the data taken from the training file.
fn resolve(path: &Path, schema: &Schema, quirks: Quirks) -> Result<Schema, DataError> {
    let mut resolved = schema.clone();
    let mut inferred: Vec<(&mut Column, Inferred)> = std::iter::once(&mut resolved.label)
        .chain(&mut resolved.columns)
        .filter_map(|column| match (&column.range, &column.categories) {
            (Some(RangeSource::FromData), None) => {
                Some((column, Inferred::Range(f64::INFINITY, f64::NEG_INFINITY)))
            }
            (None, Some(CategorySource::FromData)) => Some((column, Inferred::Categories(BTreeSet::new()))),
            _ => None,
        })
        .collect();
    if inferred.is_empty() {
        return Ok(resolved);
    }
    let (mut reader, names) = reader(raw::open(path)?.0, path, schema.delimiter()?, quirks)?;
    let wanted: Vec<&str> = inferred.iter().map(|(column, _)| column.name.as_str()).collect();
    let places = places(path, &names, &wanted)?;
    let mut record = StringRecord::new();
    while advance(&mut reader, &mut record, path, names.len())? {
        for ((column, inferred), place) in inferred.iter_mut().zip(&places) {
            let field = &record[*place];
            if schema.missing.iter().any(|missing| missing == field) {
                continue;
            }
            match inferred {
                Inferred::Range(low, high) => {
                    let value = number(field).map_err(|why| DataError::Line {
                        path: path.to_path_buf(),
                        line: record.position().map_or(0, csv::Position::line),
                        why: format!("{}: {why}", column.name),
                    })?;
                    (*low, *high) = (low.min(value), high.max(value));
                }
                Inferred::Categories(seen) => {
                    if !seen.contains(field) {
                        seen.insert(field.to_string());
                    }
                }
            }
        }
    }
    for (column, inferred) in inferred {
        match inferred {
            Inferred::Range(low, high) => column.range = Some(RangeSource::Public([low, high])),
            Inferred::Categories(seen) => {
                column.categories = Some(CategorySource::Public(seen.into_iter().collect()));
            }
        }
    }
    Ok(resolved)
}

enum Inferred {
    Range(f64, f64),
    Categories(BTreeSet<String>),
}
