//! IDX, the format of MNIST: two zero bytes, the type, the number of dimensions, the dimensions as
//! big-endian `u32`, then the values. Only unsigned bytes occur here.

use std::path::{Path, PathBuf};

use crate::dataset::{Dataset, Inputs, Split, Targets};
use crate::error::DataError;
use crate::raw;

/// Images and labels, for training and for testing, named as in MNIST; each may end in `.gz`.
pub(crate) const FILES: [&str; 4] = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
];

/// What an IDX file of unsigned bytes holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idx {
    /// The sizes, the number of items first.
    pub dimensions: Vec<usize>,
    /// The values in row-major order; exactly the product of the dimensions.
    pub values: Vec<u8>,
}

/// Reads an IDX file, zipped or not.
pub fn read(path: &Path) -> Result<Idx, DataError> {
    parse(path, raw::read(path, raw::MOST_BYTES)?)
}

/// Parses the unzipped bytes of the file at `path`, which is named in errors.
pub fn parse(path: &Path, mut bytes: Vec<u8>) -> Result<Idx, DataError> {
    let dimensions = match *bytes {
        [0, 0, 8, dimensions @ 1..=4, ..] => usize::from(dimensions),
        _ => {
            return Err(DataError::Magic {
                path: path.to_path_buf(),
                expected: "an IDX file of unsigned bytes with 1 to 4 dimensions",
                found: raw::opening(&bytes),
            });
        }
    };
    let header = 4 + 4 * dimensions;
    let truncated =
        |expected| DataError::Truncated { path: path.to_path_buf(), found: bytes.len() as u64, expected };
    if bytes.len() < header {
        return Err(truncated(header as u128));
    }
    let sizes: Vec<u32> = bytes[4..header]
        .chunks_exact(4)
        .map(|size| size.iter().fold(0, |size, byte| size << 8 | u32::from(*byte)))
        .collect();
    // Four dimensions below 2³² multiply to less than 2¹²⁸; the header is 20 bytes at most.
    let expected = sizes
        .iter()
        .try_fold(1_u128, |product, size| product.checked_mul(u128::from(*size)))
        .and_then(|product| product.checked_add(header as u128))
        .unwrap_or(u128::MAX);
    let found = bytes.len() as u128;
    if found < expected {
        return Err(truncated(expected));
    }
    if found > expected {
        return Err(DataError::TooLong { path: path.to_path_buf(), expected: expected as u64 });
    }
    bytes.drain(..header);
    // The sizes multiply to the length of a vector; only next to a zero could one of them be larger.
    let dimensions = sizes.into_iter().map(|size| size as usize).collect();
    Ok(Idx { dimensions, values: bytes })
}

/// Images and labels as a data set.
pub fn dataset(images: (PathBuf, Idx), labels: (PathBuf, Idx), classes: usize) -> Result<Dataset, DataError> {
    let (image_path, images) = images;
    let (label_path, labels) = labels;
    let content = |path: &Path, why: String| DataError::Content { path: path.to_path_buf(), why };
    let shape = match *images.dimensions {
        [_, height, width] => [height, width, 1],
        [_, height, width, channels] => [height, width, channels],
        _ => {
            let found = images.dimensions.len();
            return Err(content(&image_path, format!("{found} dimensions, images have 3 or 4")));
        }
    };
    let [count] = *labels.dimensions else {
        let found = labels.dimensions.len();
        return Err(content(&label_path, format!("{found} dimensions, labels have 1")));
    };
    if count != images.dimensions[0] {
        let why = format!("{count} labels for {} images", images.dimensions[0]);
        return Err(content(&label_path, why));
    }
    let labels = labels.values.into_iter().map(u32::from).collect();
    Dataset::new(Inputs::Bytes(images.values), Targets::Classes { labels, classes }, shape)
        .map_err(|error| content(&label_path, error.to_string()))
}

/// Any data set in the four files of MNIST: `train-images-idx3-ubyte`, `train-labels-idx1-ubyte` and the
/// same with `t10k`, each zipped (`.gz`) or not. The number of classes is a public constant, so it is
/// not taken from the labels.
pub fn load(directory: &Path, classes: usize) -> Result<Split, DataError> {
    let file = |name: &str| {
        let plain = directory.join(name);
        let path = if plain.exists() { plain } else { directory.join(format!("{name}.gz")) };
        let idx = read(&path)?;
        Ok::<_, DataError>((path, idx))
    };
    let [train_images, train_labels, test_images, test_labels] = FILES;
    split(
        dataset(file(train_images)?, file(train_labels)?, classes)?,
        dataset(file(test_images)?, file(test_labels)?, classes)?,
        directory,
    )
}

/// Two sets of the same shape.
pub(crate) fn split(train: Dataset, test: Dataset, path: &Path) -> Result<Split, DataError> {
    if train.shape() != test.shape() {
        return Err(DataError::Content {
            path: path.to_path_buf(),
            why: format!("training images are {:?}, test images are {:?}", train.shape(), test.shape()),
        });
    }
    Ok(Split { train, test })
}
