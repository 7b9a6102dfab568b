//! Tables: CSV with a header, Parquet, or a NumPy array of columns, read according to a [`Schema`].

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::dataset::{Dataset, Inputs, Split, Targets};
use crate::error::{DataError, setting};
use crate::records::{Record, Records};
use crate::schema::{CategorySource, Column, Encoding, Plan, RangeSource, Schema, Unlisted};
use crate::source::Source;

/// Where the test samples come from. A rule on row numbers is public and fixed, so replacing one row
/// changes one sample of one of the two sets.
#[derive(Clone, Debug, PartialEq)]
pub enum TestRows {
    /// A separate file.
    File(PathBuf),
    /// The last rows: this fraction of all, rounded down, at least one.
    Last(f64),
    /// Every k-th row.
    Every(usize),
}

/// Reads a table: `.parquet`, `.npy`, `.npz`, or else CSV, zipped or not. Column names and fields are
/// trimmed; fields of CSV may be quoted.
///
/// Each row is converted on its own, regardless of the other rows, as long as [`Schema::uncovered`] is empty.
pub fn load(train: &Path, test: &TestRows, schema: &Schema) -> Result<Split, DataError> {
    let train = Source::file(train);
    let plan = Plan::of(&resolve(&train, schema)?)?;
    let rows = read_columns(&train, schema, &plan, true)?;
    let (train, test) = match test {
        TestRows::File(path) => (rows, read_columns(&Source::file(path), schema, &plan, true)?),
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

/// Reads a table as one data set; see [`load`].
pub fn load_one(path: &Path, schema: &Schema) -> Result<Dataset, DataError> {
    let source = Source::file(path);
    let plan = Plan::of(&resolve(&source, schema)?)?;
    read_columns(&source, schema, &plan, true)?.dataset(&plan)
}

/// The rows of a table as numbers.
#[derive(Default)]
pub(crate) struct Rows {
    values: Vec<f32>,
    /// For each value, whether it is missing.
    missing: Vec<bool>,
    /// The index of a class, or a value from 0 to 1.
    targets: Vec<f64>,
}

impl Rows {
    fn len(&self) -> usize {
        self.targets.len()
    }

    fn parted(self, plan: &Plan, is_test: impl Fn(usize) -> bool) -> Result<(Self, Self), DataError> {
        let (mut train, mut test) = (Self::default(), Self::default());
        let width = plan.features();
        let values = self.values.chunks_exact(width).zip(self.missing.chunks_exact(width));
        for (row, ((values, missing), target)) in values.zip(&self.targets).enumerate() {
            let part = if is_test(row) { &mut test } else { &mut train };
            part.values.extend_from_slice(values);
            part.missing.extend_from_slice(missing);
            part.targets.push(*target);
        }
        if train.len() == 0 || test.len() == 0 {
            let given = format!("{} for training, {} for testing", train.len(), test.len());
            return setting("rows", given, "at least one each", "the file is split into both sets");
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
        let missing = if self.missing.contains(&true) { self.missing } else { Vec::new() };
        Ok(set.with_numeric(plan.numeric()).with_missing(missing))
    }
}

/// The index of each wanted column in the file.
fn places(source: &Source, names: &[String], wanted: &[&str]) -> Result<Vec<usize>, DataError> {
    let place = |wanted: &&str| {
        let mut places = (0..names.len()).filter(|place| names[*place] == **wanted);
        match (places.next(), places.next()) {
            (Some(place), None) => Ok(place),
            (Some(_), Some(_)) => Err(source.content(format!("two columns are named {wanted:?}"))),
            (None, _) => {
                let names: Vec<String> = names.iter().take(50).map(|name| shown(name)).collect();
                let names = names.join(", ");
                Err(source.content(format!(
                    "no column {wanted:?}; the first line must be a header; it has: {names}"
                )))
            }
        }
    };
    wanted.iter().map(place).collect()
}

/// Reads a table without its label, which need not be there; columns that the schema does not name are left
/// out. The targets of the result mean nothing.
pub fn load_inputs(path: &Path, schema: &Schema) -> Result<Dataset, DataError> {
    let source = Source::file(path);
    let plan = Plan::of(schema)?;
    read_columns(&source, schema, &plan, false)?.dataset(&plan)
}

/// Reads rows according to a checked schema.
pub(crate) fn read(source: &Source, schema: &Schema, plan: &Plan) -> Result<Rows, DataError> {
    read_columns(source, schema, plan, true)
}

/// Reads rows with or without the label; without it, other columns do not matter.
fn read_columns(source: &Source, schema: &Schema, plan: &Plan, labelled: bool) -> Result<Rows, DataError> {
    let mut records = Records::open(source, schema, labelled)?;
    let names = records.names.clone();
    let label = labelled.then_some(&plan.label);
    let wanted: Vec<&str> = plan.columns.iter().chain(label).map(|(name, _)| name.as_str()).collect();
    let places = places(source, &names, &wanted)?;
    let unknown = |name: &&String| !wanted.contains(&name.as_str()) && !plan.ignore.contains(*name);
    if let Some(name) = names.iter().find(unknown).filter(|_| labelled) {
        let why = format!("column {} has no meaning in the schema; describe it or ignore it", shown(name));
        return Err(source.content(why));
    }
    let mut rows = Rows::default();
    let mut record = Record::default();
    while let Some(at) = records.next(source, &mut record)? {
        let error = |why| at.error(source, why);
        for ((name, encoding), place) in plan.columns.iter().zip(&places) {
            let at = rows.values.len();
            rows.values.resize(at + encoding.width(), 0.0);
            rows.missing.resize(at + encoding.width(), false);
            match value(encoding, record.get(*place), plan).map_err(|why| error(format!("{name}: {why}")))? {
                Value::Unit(unit) => rows.values[at] = unit as f32,
                Value::Place(place) => rows.values[at + place] = 1.0,
                Value::Missing => {
                    if let Encoding::Range { .. } = encoding {
                        (rows.values[at], rows.missing[at]) = (0.5, true);
                    }
                }
            }
        }
        // `places` has one for each of `wanted`, the label last.
        let target = match label {
            Some((name, encoding)) => {
                label_of(encoding, record.get(places[plan.columns.len()]), source, plan)
                    .map_err(|why| error(format!("{name}: {why}")))?
            }
            None => 0.0,
        };
        rows.targets.push(target);
    }
    if rows.len() == 0 {
        return Err(source.content("no rows".to_string()));
    }
    Ok(rows)
}

/// The index of a class, or a value from 0 to 1.
fn label_of(encoding: &Encoding, field: Option<&str>, source: &Source, plan: &Plan) -> Result<f64, String> {
    let stop = field.filter(|_| source.quirks.label_stop).and_then(|field| field.strip_suffix('.'));
    match value(encoding, stop.or(field), plan)? {
        Value::Unit(unit) => Ok(unit),
        Value::Place(place) => Ok(place as f64),
        Value::Missing => Err("the label is missing or not in the list; every sample needs one".to_string()),
    }
}

/// Text from a file in quotes, on one line and not too long: a missing quote can turn half a file into one
/// field.
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

fn value(encoding: &Encoding, field: Option<&str>, plan: &Plan) -> Result<Value, String> {
    let Some(field) = field else { return Ok(Value::Missing) };
    match encoding {
        // A category may be written like a missing value: the list decides.
        Encoding::Categories(places) => match places.get(field) {
            Some(place) => Ok(Value::Place(*place)),
            None if plan.missing.contains(field) || plan.unlisted == Unlisted::Zero => Ok(Value::Missing),
            None => Err(format!(
                "{} is not in the list of categories; add it, or (for a column, not for the label) set \
                 unlisted = \"zero\" in [schema]",
                shown(field)
            )),
        },
        Encoding::Range { .. } if plan.missing.contains(field) => Ok(Value::Missing),
        Encoding::Range { low, width } => Ok(Value::Unit(((number(field)? - low) / width).clamp(0.0, 1.0))),
    }
}

/// The schema with every `from-data` replaced by what the training file holds.
fn resolve(source: &Source, schema: &Schema) -> Result<Schema, DataError> {
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
    let mut records = Records::open(source, schema, true)?;
    let wanted: Vec<&str> = inferred.iter().map(|(column, _)| column.name.as_str()).collect();
    let places = places(source, &records.names, &wanted)?;
    let mut record = Record::default();
    while let Some(at) = records.next(source, &mut record)? {
        for ((column, inferred), place) in inferred.iter_mut().zip(&places) {
            let Some(field) = record.get(*place) else { continue };
            if schema.missing.iter().any(|missing| missing == field) {
                continue;
            }
            match inferred {
                Inferred::Range(low, high) => {
                    let value =
                        number(field).map_err(|why| at.error(source, format!("{}: {why}", column.name)))?;
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
