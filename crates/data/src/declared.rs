//! What everybody may know about images and arrays, declared before anybody looks at them.
//!
//! Which classes occur and how large the values are depends on private data, so both are stated, like the
//! columns of a table in its [`schema`](crate::schema).

use std::fmt;
use std::str::FromStr;

use crate::error::{DataError, setting};

/// The most classes that are given by their number alone.
const MOST_CLASSES: usize = 100_000;

/// The largest side of an image, in pixels.
const LARGEST_SIDE: usize = 4096;

/// The size to which every image of a folder is brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSize {
    /// In pixels.
    pub height: usize,
    /// In pixels.
    pub width: usize,
    /// 1 for grey, 3 for red, green and blue.
    pub channels: usize,
}

impl FromStr for ImageSize {
    type Err = DataError;

    fn from_str(text: &str) -> Result<Self, DataError> {
        let sides: Option<Vec<usize>> = text.split(['x', '×']).map(|side| side.trim().parse().ok()).collect();
        let (height, width, channels) = match sides.as_deref() {
            Some(&[height, width]) => (height, width, 3),
            Some(&[height, width, channels]) => (height, width, channels),
            _ => (0, 0, 0),
        };
        let side = |side: usize| (1..=LARGEST_SIDE).contains(&side);
        if side(height) && side(width) && [1, 3].contains(&channels) {
            return Ok(Self { height, width, channels });
        }
        setting(
            "image-size",
            text,
            format!(
                "HEIGHTxWIDTH or HEIGHTxWIDTHxCHANNELS, as in 32x32 or 28x28x1; sides up to {LARGEST_SIDE}"
            ),
            "every image is brought to it; channels are 3 (colour) or 1 (grey)",
        )
    }
}

impl fmt::Display for ImageSize {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}x{}x{}", self.height, self.width, self.channels)
    }
}

/// Public knowledge about images and arrays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Declared {
    /// The names of the classes, in the order of their numbers.
    pub classes: Vec<String>,
    /// The size to which the images of a folder are brought.
    pub size: Option<ImageSize>,
    /// The range of the values of an array, which is mapped to 0 to 1; a value outside counts as its nearer
    /// end. Bytes need none: they run from 0 to 255.
    pub range: Option<[f64; 2]>,
    /// Whether the channels of an array stand before height and width, as in PyTorch.
    pub channels_first: bool,
}

impl Declared {
    /// The names of the classes, from names or from their number alone.
    pub fn class_names(given: &[String]) -> Result<Vec<String>, DataError> {
        let names: Vec<String> = match given {
            [number] if number.parse::<usize>().is_ok_and(|count| count <= MOST_CLASSES) => {
                (0..number.parse::<usize>().unwrap_or(0)).map(|class| class.to_string()).collect()
            }
            names => names.to_vec(),
        };
        let mut sorted = names.clone();
        sorted.sort();
        sorted.dedup();
        if !given.is_empty() && (names.len() < 2 || sorted.len() < names.len()) {
            return setting(
                "classes",
                given.join(","),
                "at least two names, none twice, or their number",
                "the model learns to tell them apart",
            );
        }
        Ok(names)
    }

    /// The number of classes; an error that says what to declare if there is none.
    pub(crate) fn class_count(&self, what: &str, found: &str) -> Result<usize, DataError> {
        if self.classes.is_empty() {
            return setting(
                "classes",
                "none",
                format!("the classes of {what}, as public knowledge: --classes {found}"),
                "which classes occur in private data is private, so it is not taken from there",
            );
        }
        Ok(self.classes.len())
    }

    /// The range, checked.
    pub(crate) fn checked_range(&self) -> Result<Option<[f64; 2]>, DataError> {
        match self.range {
            Some([low, high])
                if !(low.is_finite() && high.is_finite() && (high - low).is_finite() && low < high) =>
            {
                setting(
                    "value-range",
                    format!("{low},{high}"),
                    "a finite low below a finite high",
                    "it is the public range that is mapped to 0 to 1",
                )
            }
            range => Ok(range),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        let size: ImageSize = "32x24".parse().unwrap();
        assert_eq!(
            (size, size.to_string().as_str()),
            (ImageSize { height: 32, width: 24, channels: 3 }, "32x24x3")
        );
        assert_eq!("28×28×1".parse::<ImageSize>().unwrap().channels, 1);
        for wrong in ["", "32", "0x5", "5x5x2", "9999x9999", "axb", "1x1x1x1"] {
            assert!(wrong.parse::<ImageSize>().unwrap_err().to_string().contains("HEIGHTxWIDTH"), "{wrong}");
        }
    }

    #[test]
    fn classes_have_names_or_a_number() {
        let names = |given: &[&str]| {
            Declared::class_names(&given.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(names(&["3"]).unwrap(), ["0", "1", "2"]);
        assert_eq!(names(&["cat", "dog"]).unwrap(), ["cat", "dog"]);
        assert!(names(&[]).unwrap().is_empty());
        for wrong in [&["cat"][..], &["cat", "cat"], &["1"], &["0"], &["999999999999"]] {
            assert!(names(wrong).is_err(), "{wrong:?}");
        }
    }
}
