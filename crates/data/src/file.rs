//! Any file or folder of one's own, read by its format.

use std::path::{Path, PathBuf};

use crate::dataset::{Dataset, Split};
use crate::declared::Declared;
use crate::error::DataError;
use crate::records::ending;
use crate::schema::Schema;
use crate::table::{self, TestRows};
use crate::{arrays, folder, idx};

/// The format of somebody's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// CSV or Parquet, which a schema describes.
    Table,
    /// `.npy` or `.npz`: a table if there is a schema.
    Arrays,
    /// A folder of images, or one image.
    Images,
}

/// Endings of formats that people try and that are not read.
const REFUSED: [&str; 9] = ["pt", "pth", "xlsx", "xls", "json", "jsonl", "feather", "h5", "hdf5"];

impl Format {
    /// By what the path is called, and whether it is a folder.
    pub fn of(path: &Path) -> Self {
        match ending(path).as_deref() {
            _ if path.is_dir() => Format::Images,
            Some("png" | "jpg" | "jpeg") => Format::Images,
            Some("npy" | "npz") => Format::Arrays,
            _ => Format::Table,
        }
    }
}

/// What is public about the data: the columns of a table, or the classes and values of images.
#[derive(Clone, Copy, Debug)]
pub struct Public<'a> {
    /// Of a table.
    pub schema: Option<&'a Schema>,
    /// Of anything else.
    pub declared: &'a Declared,
}

impl<'a> Public<'a> {
    /// The schema, if the path is a table.
    fn table(&self, path: &Path) -> Result<Option<&'a Schema>, DataError> {
        let refused = ending(path).filter(|ending| REFUSED.contains(&ending.as_str()));
        match (Format::of(path), self.schema) {
            (Format::Images, _) | (Format::Arrays, None) => Ok(None),
            (Format::Arrays | Format::Table, Some(schema)) => Ok(Some(schema)),
            (Format::Table, None) => Err(DataError::Content {
                path: path.to_path_buf(),
                why: match refused {
                    Some(ending) => format!(
                        ".{ending} files are not read; export CSV, Parquet or .npz, or train from a program"
                    ),
                    None => {
                        "a table needs a schema in --config: [schema.label] and a [[schema.column]] for each \
                             column, with a name and either range = [low, high] or categories = [\"…\"] (see \
                             docs/data.md and dpsgd train --help)"
                            .to_string()
                    }
                },
            }),
        }
    }

    /// Training samples and, where there are any, test samples of the same shape.
    pub fn load(&self, path: &Path, test: Option<&Path>) -> Result<(Dataset, Option<Dataset>), DataError> {
        if let Some(schema) = self.table(path)? {
            return Ok(match test {
                Some(test) => {
                    let split = table::load(path, &TestRows::File(PathBuf::from(test)), schema)?;
                    (split.train, Some(split.test))
                }
                None => (table::load_one(path, schema)?, None),
            });
        }
        let train = self.load_one(path)?;
        let Some(test) = test else { return Ok((train, None)) };
        let Split { train, test } = idx::split(train, self.load_one(test)?, test)?;
        Ok((train, Some(test)))
    }

    /// Labelled samples.
    pub fn load_one(&self, path: &Path) -> Result<Dataset, DataError> {
        match (self.table(path)?, Format::of(path)) {
            (Some(schema), _) => table::load_one(path, schema),
            (None, Format::Images) => Ok(folder::load(path, self.declared)?.dataset),
            (None, _) => arrays::load(path, self.declared),
        }
    }

    /// Samples without labels, and their names where they are files. The targets mean nothing.
    pub fn load_inputs(&self, path: &Path) -> Result<(Dataset, Option<Vec<String>>), DataError> {
        match (self.table(path)?, Format::of(path)) {
            (Some(schema), _) => Ok((table::load_inputs(path, schema)?, None)),
            (None, Format::Images) => {
                let images = folder::load_inputs(path, self.declared)?;
                Ok((images.dataset, Some(images.names)))
            }
            (None, _) => Ok((arrays::load_inputs(path, self.declared)?, None)),
        }
    }
}
