//! What the columns of a table mean, declared before anybody looks at the data.
//!
//! Which categories occur in a private file, and the smallest and largest value of a column, depend on the
//! data: one person with a rare job would add a feature to the model. So the schema states both, as public
//! knowledge.
//!
//! ```toml
//! ignore = ["id"]                     # columns that are not used
//! missing = ["", "?", "NA"]           # how a missing value is written
//! unlisted = "zero"                   # what to do with a category that is not in the list
//! delimiter = ";"                     # what separates the fields
//!
//! [label]                             # what the model learns to predict
//! name = "income"
//! categories = ["low", "high"]
//!
//! [[column]]                          # a number
//! name = "age"
//! range = [0, 100]
//!
//! [[column]]                          # a category
//! name = "job"
//! categories = "from-data"            # not covered by the guarantee
//! ```
//!
//! | key | meaning | default |
//! |---|---|---|
//! | `label` | the column to predict: a class if it has `categories`, a value if a `range` | required |
//! | `column` | an input: a `range`, mapped to 0 to 1, or `categories`, each a 0/1 feature | required |
//! | `ignore` | columns that are not used; any other column without a meaning is refused | none |
//! | `missing` | strings that mean no value, see below | `""`, `"?"` |
//! | `unlisted` | an unlisted category: `"refuse"` the file, or `"zero"`, count it as missing | `"refuse"` |
//! | `delimiter` | one ASCII character between fields, neither a quote nor an end of line | `","` |
//!
//! A missing number counts as the mean of its column (the middle of its range if it is not normalised), a
//! missing category as none of the list. A value outside its range counts as the nearer end. A label is never missing or unlisted: such a row is
//! refused. No row is skipped, so that N does not depend on what the rows hold.
//!
//! `range = "from-data"` and `categories = "from-data"` take the range or the list from the training file.
//! That releases them without noise, **outside any guarantee**; [`Schema::uncovered`] lists such columns.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::error::{DataError, setting};

/// Where the categories of a column come from. In a file: a list, or `"from-data"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CategorySource {
    /// Those that occur in the file, in alphabetical order. **Not covered by the guarantee**: which
    /// categories exist is then released without noise.
    FromData,
    /// A public list.
    #[serde(untagged)]
    Public(Vec<String>),
}

/// Where the range of a column comes from. In a file: `[low, high]`, or `"from-data"`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RangeSource {
    /// The smallest and largest value in the file. **Not covered by the guarantee**: both are then
    /// released without noise.
    FromData,
    /// A public range; a value outside counts as its nearer end.
    #[serde(untagged)]
    Public([f64; 2]),
}

/// A column with a meaning: exactly one of `range` and `categories` is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Column {
    /// Its name in the header.
    pub name: String,
    /// A numeric column: the range that is mapped to 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<RangeSource>,
    /// A categorical column: its possible values, each a feature of 0 or 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub categories: Option<CategorySource>,
}

impl Column {
    /// A numeric column with a public range.
    pub fn numeric(name: &str, low: f64, high: f64) -> Self {
        Self { name: name.to_string(), range: Some(RangeSource::Public([low, high])), categories: None }
    }

    /// A categorical column with a public list.
    pub fn categorical(name: &str, categories: &[&str]) -> Self {
        let categories = categories.iter().map(ToString::to_string).collect();
        Self { name: name.to_string(), range: None, categories: Some(CategorySource::Public(categories)) }
    }

    fn uncovered(&self) -> bool {
        self.range == Some(RangeSource::FromData) || self.categories == Some(CategorySource::FromData)
    }
}

/// What happens to a category that is not in the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unlisted {
    /// The file is refused. Whoever loads the file sees this; those who see the model do not.
    #[default]
    Refuse,
    /// It counts as missing: all features of the column are 0.
    Zero,
}

/// What the columns of a table mean. See the [module documentation](self).
///
/// ```
/// use dpsgd_data::schema::Schema;
/// let schema: Schema = toml::from_str(r#"
///     ignore = ["id"]
///     [label]
///     name = "income"
///     categories = ["low", "high"]
///     [[column]]
///     name = "age"
///     range = [0, 100]
///     [[column]]
///     name = "job"
///     categories = "from-data"
/// "#)?;
/// assert_eq!(schema.uncovered(), ["job"]);
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Schema {
    /// The target: a class if it has categories, a value from 0 to 1 if it has a range.
    pub label: Column,
    /// The inputs, in the order in which the model sees them; the file may use another order.
    #[serde(rename = "column", default)]
    pub columns: Vec<Column>,
    /// The columns that are not used. A column that is neither used nor listed here is refused.
    #[serde(default)]
    pub ignore: Vec<String>,
    /// How a missing value is written: a number then counts as the mean of its column (the middle of its
    /// range if it is not normalised), a category as none of the list. No row is left out, so that N does not
    /// depend on the data.
    #[serde(default = "missing")]
    pub missing: Vec<String>,
    /// What happens to a category that is not in the list.
    #[serde(default)]
    pub unlisted: Unlisted,
    /// What separates the fields.
    #[serde(default = "delimiter")]
    pub delimiter: char,
}

fn missing() -> Vec<String> {
    vec![String::new(), "?".to_string()]
}

fn delimiter() -> char {
    ','
}

impl Schema {
    /// A schema with the defaults: `?` and an empty field for a missing value, a comma between fields.
    pub fn new(label: Column, columns: Vec<Column>) -> Self {
        Self {
            label,
            columns,
            ignore: Vec::new(),
            missing: missing(),
            unlisted: Unlisted::Refuse,
            delimiter: delimiter(),
        }
    }

    /// The delimiter, checked.
    pub(crate) fn delimiter(&self) -> Result<u8, DataError> {
        match u8::try_from(self.delimiter) {
            Ok(byte) if byte.is_ascii() && !b"\"\r\n".contains(&byte) => Ok(byte),
            _ => setting(
                "delimiter",
                format!("{:?}", self.delimiter),
                "an ASCII character other than a quote or an end of line",
                "it is the single byte between two fields",
            ),
        }
    }

    /// The columns whose categories or range come from the data, which no guarantee covers.
    pub fn uncovered(&self) -> Vec<&str> {
        let columns = std::iter::once(&self.label).chain(&self.columns);
        columns.filter(|column| column.uncovered()).map(|column| column.name.as_str()).collect()
    }
}

/// How one column is turned into numbers, checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Encoding {
    Range { low: f64, width: f64 },
    Categories(HashMap<String, usize>),
}

impl Encoding {
    /// The features it becomes.
    pub(crate) fn width(&self) -> usize {
        match self {
            Encoding::Range { .. } => 1,
            Encoding::Categories(categories) => categories.len(),
        }
    }

    fn of(column: &Column) -> Result<Self, DataError> {
        let name = format!("column {}", column.name);
        match (&column.range, &column.categories) {
            (Some(RangeSource::Public([low, high])), None) => {
                let width = high - low;
                if !(low.is_finite() && high.is_finite() && width.is_finite() && width > 0.0) {
                    return setting(
                        name,
                        format!("[{low}, {high}]"),
                        "a finite low below a finite high",
                        "it is the public range that is mapped to 0 to 1",
                    );
                }
                Ok(Encoding::Range { low: *low, width })
            }
            (None, Some(CategorySource::Public(list))) => {
                let places: HashMap<String, usize> = list
                    .iter()
                    .enumerate()
                    .map(|(place, category)| (category.trim().to_string(), place))
                    .collect();
                if places.is_empty() || places.len() < list.len() {
                    return setting(
                        name,
                        format!("{list:?}"),
                        "at least one category, none twice",
                        "each category becomes one feature",
                    );
                }
                Ok(Encoding::Categories(places))
            }
            // Resolved before a schema is checked, see `table`.
            (Some(RangeSource::FromData), None) | (None, Some(CategorySource::FromData)) => {
                setting(name, "from-data", "a public list or range", "the file has not been read")
            }
            (range, _) => setting(
                name,
                if range.is_some() { "range and categories" } else { "neither range nor categories" },
                "one of the two",
                "a column is numeric or categorical",
            ),
        }
    }
}

/// A checked schema.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) label: (String, Encoding),
    pub(crate) columns: Vec<(String, Encoding)>,
    pub(crate) ignore: HashSet<String>,
    pub(crate) missing: HashSet<String>,
    pub(crate) unlisted: Unlisted,
}

impl Plan {
    pub(crate) fn of(schema: &Schema) -> Result<Self, DataError> {
        schema.delimiter()?;
        if schema.columns.is_empty() {
            return setting("columns", "none", "at least one", "there is nothing to learn from");
        }
        let mut seen = HashSet::new();
        let all = std::iter::once(&schema.label).chain(&schema.columns).map(|column| &column.name);
        for name in all.chain(&schema.ignore) {
            if !seen.insert(name) {
                return setting("column", name, "listed once", "a column is an input, the label, or ignored");
            }
        }
        let columns = schema
            .columns
            .iter()
            .map(|column| Ok((column.name.clone(), Encoding::of(column)?)))
            .collect::<Result<_, DataError>>()?;
        Ok(Self {
            label: (schema.label.name.clone(), Encoding::of(&schema.label)?),
            columns,
            ignore: schema.ignore.iter().cloned().collect(),
            missing: schema.missing.iter().cloned().collect(),
            unlisted: schema.unlisted,
        })
    }

    /// The number of features.
    pub(crate) fn features(&self) -> usize {
        self.columns.iter().map(|(_, encoding)| encoding.width()).sum()
    }

    /// For each feature, whether it is numeric.
    pub(crate) fn numeric(&self) -> Vec<bool> {
        let repeated = self.columns.iter().map(|(_, encoding)| {
            std::iter::repeat_n(matches!(encoding, Encoding::Range { .. }), encoding.width())
        });
        repeated.flatten().collect()
    }
}
