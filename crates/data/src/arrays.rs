//! Data sets in NumPy's files: images with their labels, or the columns of a table.
//!
//! | | inputs | targets |
//! |---|---|---|
//! | `train.npz` | the array `x` or `images` | the array `y` or `labels` |
//! | `train.npy` | the file itself | `train.labels.npy` beside it |
//!
//! Inputs have the shape (N, height, width), (N, height, width, channels), (N, channels, height, width) with
//! [`Declared::channels_first`], or (N, values). Bytes stand for p/255; any other type needs a public
//! [`Declared::range`]. Targets are N integers below the number of declared classes. A table is (N, columns)
//! with a [`Schema`](crate::schema::Schema) whose columns are listed in the order of the array.

use std::path::{Path, PathBuf};

use crate::dataset::{Dataset, Inputs, Targets};
use crate::declared::Declared;
use crate::error::{DataError, setting};
use crate::npy::{self, Array, Numbers};

/// The names of the inputs in an archive.
const INPUTS: [&str; 2] = ["x", "images"];
/// The names of the targets.
const TARGETS: [&str; 2] = ["y", "labels"];

/// Inputs and, if they were asked for, targets, each with a name for messages.
pub(crate) struct Pair {
    pub(crate) inputs: (String, Array),
    pub(crate) targets: Option<(PathBuf, String, Array)>,
}

/// The file of the targets of a `.npy` file.
fn targets_beside(path: &Path) -> PathBuf {
    path.with_extension("labels.npy")
}

/// Reads inputs and targets.
pub(crate) fn read(path: &Path, labelled: bool) -> Result<Pair, DataError> {
    let archive = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("npz"));
    if !archive {
        let beside = targets_beside(path);
        if labelled && !beside.is_file() {
            return Err(DataError::Content {
                path: path.to_path_buf(),
                why: format!("its labels are expected in {}, which is not there", beside.display()),
            });
        }
        let targets =
            if labelled { Some((beside.clone(), String::new(), npy::read(&beside)?)) } else { None };
        return Ok(Pair { inputs: (String::new(), npy::read(path)?), targets });
    }
    let wanted: &[&[&str]] = if labelled { &[&INPUTS, &TARGETS] } else { &[&INPUTS] };
    let mut found = npy::read_archive(path, wanted)?.into_iter();
    let mut next = |names: [&str; 2]| match found.next().flatten() {
        Some(array) => Ok(array),
        None => Err(DataError::Content {
            path: path.to_path_buf(),
            why: format!(
                "no array named {} or {}; it has: {}",
                names[0],
                names[1],
                npy::names(path).unwrap_or_default().join(", ")
            ),
        }),
    };
    let inputs = next(INPUTS)?;
    let targets = if labelled { Some(next(TARGETS)?) } else { None };
    Ok(Pair { inputs, targets: targets.map(|(name, array)| (path.to_path_buf(), name, array)) })
}

fn wrong(path: &Path, name: &str, array: &Array, why: impl std::fmt::Display) -> DataError {
    let of = if name.is_empty() { String::new() } else { format!("array {name}: ") };
    DataError::Content { path: path.to_path_buf(), why: format!("{of}{}: {why}", array.said()) }
}

/// Reads images, or vectors of numbers, with their labels.
pub fn load(path: &Path, declared: &Declared) -> Result<Dataset, DataError> {
    let pair = read(path, true)?;
    dataset(path, pair, declared)
}

/// Reads images, or vectors of numbers, without labels. The targets of the result mean nothing.
pub fn load_inputs(path: &Path, declared: &Declared) -> Result<Dataset, DataError> {
    dataset(path, read(path, false)?, declared)
}

fn dataset(path: &Path, pair: Pair, declared: &Declared) -> Result<Dataset, DataError> {
    let (name, mut array) = pair.inputs;
    if declared.channels_first {
        if array.shape.len() != 4 {
            return Err(wrong(path, &name, &array, "channels-first is for four dimensions"));
        }
        array = array.transposed(&[0, 2, 3, 1]);
    }
    let shape = match *array.shape {
        [_, values] => [1, 1, values],
        [_, height, width] => [height, width, 1],
        [_, height, width, channels] => [height, width, channels],
        _ => {
            let why = "the inputs must be (N, values), (N, height, width) or (N, height, width, channels)";
            return Err(wrong(path, &name, &array, why));
        }
    };
    let count = array.shape[0];
    let classes = declared.class_count("the labels", "10 (their number, or their names in order)")?;
    let labels = match &pair.targets {
        Some((file, name, array)) => labels(file, name, array, count, classes)?,
        None => vec![0; count],
    };
    let inputs = inputs(path, &name, &array, declared)?;
    Dataset::new(inputs, Targets::Classes { labels, classes }, shape)
        .map_err(|error| wrong(path, &name, &array, error))
}

/// The inputs between 0 and 1.
fn inputs(path: &Path, name: &str, array: &Array, declared: &Declared) -> Result<Inputs, DataError> {
    let range = declared.checked_range()?;
    let (low, width) = match (&array.numbers, range) {
        (Numbers::Bytes(values), None) => return Ok(Inputs::Bytes(values.clone())),
        (_, Some([low, high])) => (low, high - low),
        (_, None) => {
            let of = if name.is_empty() { "the array".to_string() } else { format!("array {name}") };
            return setting(
                "value-range",
                "none",
                format!("low,high of {of} in {}, which is {}", path.display(), array.said()),
                "its smallest and largest value are private, so they are not taken from there; only bytes need no \
                 range",
            );
        }
    };
    let numbers = &array.numbers;
    let unit = |place: usize| match numbers.value(place) {
        value if value.is_nan() => Err(wrong(path, name, array, format!("value {place} is NaN"))),
        value => Ok(((value - low) / width).clamp(0.0, 1.0) as f32),
    };
    Ok(Inputs::Floats((0..numbers.len()).map(unit).collect::<Result<_, _>>()?))
}

/// The labels, each below the number of classes.
fn labels(
    path: &Path,
    name: &str,
    array: &Array,
    count: usize,
    classes: usize,
) -> Result<Vec<u32>, DataError> {
    if array.shape[..] != [count] {
        return Err(wrong(path, name, array, format!("must be ({count},), one label for each input")));
    }
    let label = |place: usize| match &array.numbers {
        Numbers::Bytes(values) => Some(i64::from(values[place])),
        Numbers::Integers(values) => Some(values[place]),
        Numbers::Singles(_) | Numbers::Doubles(_) => None,
    };
    (0..count)
        .map(|place| match label(place) {
            Some(label) if (0..classes as i64).contains(&label) => Ok(label as u32),
            Some(label) => {
                let why = format!("label {place} is {label}; {classes} classes are declared, from 0 on");
                Err(wrong(path, name, array, why))
            }
            None => Err(wrong(path, name, array, "labels are integers; convert them with astype('int64')")),
        })
        .collect()
}
