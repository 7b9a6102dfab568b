//! NumPy's arrays: `.npy`, and `.npz`, which is a zip archive of them.
//!
//! A file starts with `\x93NUMPY`, the version, the length of the header and the header, a Python dictionary:
//! `{'descr': '<f4', 'fortran_order': False, 'shape': (60000, 28, 28), }`. It is read here and not by a
//! crate because those evaluate any Python literal: deep nesting overflows their stack, large shapes their
//! products. Only this dictionary and plain numbers are accepted.

use std::io::{Cursor, Read};
use std::path::Path;

use zip::ZipArchive;
use zip::result::ZipError;

use crate::error::DataError;
use crate::raw;

/// The first bytes of every `.npy` file.
const MAGIC: &[u8] = b"\x93NUMPY";

/// The longest header that NumPy itself reads without being told to.
const LONGEST_HEADER: usize = 10_000;

/// The numbers of an array, in the order of C.
#[derive(Clone, Debug, PartialEq)]
pub enum Numbers {
    /// `uint8`, and `bool` as 0 and 1.
    Bytes(Vec<u8>),
    /// Every other integer.
    Integers(Vec<i64>),
    /// `float32`.
    Singles(Vec<f32>),
    /// `float64`.
    Doubles(Vec<f64>),
}

impl Numbers {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Numbers::Bytes(values) => values.len(),
            Numbers::Integers(values) => values.len(),
            Numbers::Singles(values) => values.len(),
            Numbers::Doubles(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One of them; integers beyond 2⁵³ are rounded.
    pub fn value(&self, place: usize) -> f64 {
        match self {
            Numbers::Bytes(values) => f64::from(values[place]),
            Numbers::Integers(values) => values[place] as f64,
            Numbers::Singles(values) => f64::from(values[place]),
            Numbers::Doubles(values) => values[place],
        }
    }

    /// One of them as text that says exactly that number; none for NaN, which stands for a missing value.
    pub fn text(&self, place: usize) -> Option<String> {
        match self {
            Numbers::Bytes(values) => Some(values[place].to_string()),
            Numbers::Integers(values) => Some(values[place].to_string()),
            Numbers::Singles(values) => Some(values[place]).filter(|x| !x.is_nan()).map(|x| x.to_string()),
            Numbers::Doubles(values) => Some(values[place]).filter(|x| !x.is_nan()).map(|x| x.to_string()),
        }
    }

    fn take(&self, places: &[usize]) -> Self {
        fn taken<T: Copy>(values: &[T], places: &[usize]) -> Vec<T> {
            places.iter().map(|place| values[*place]).collect()
        }
        match self {
            Numbers::Bytes(values) => Numbers::Bytes(taken(values, places)),
            Numbers::Integers(values) => Numbers::Integers(taken(values, places)),
            Numbers::Singles(values) => Numbers::Singles(taken(values, places)),
            Numbers::Doubles(values) => Numbers::Doubles(taken(values, places)),
        }
    }
}

/// An array.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// How NumPy writes the type: `<f4`, `|u1`.
    pub dtype: String,
    /// The sizes; their product is the number of values.
    pub shape: Vec<usize>,
    /// The values in the order of C: the last index runs fastest.
    pub numbers: Numbers,
}

impl Array {
    /// The type and the shape, for messages.
    pub fn said(&self) -> String {
        let sizes: Vec<String> = self.shape.iter().map(ToString::to_string).collect();
        format!("dtype {}, shape ({})", self.dtype, sizes.join(", "))
    }

    /// The array with its axes in another order; `axes` names each axis once.
    pub(crate) fn transposed(&self, axes: &[usize]) -> Self {
        let mut strides = vec![1; self.shape.len()];
        for axis in (0..self.shape.len().saturating_sub(1)).rev() {
            strides[axis] = strides[axis + 1] * self.shape[axis + 1];
        }
        let shape: Vec<usize> = axes.iter().map(|axis| self.shape[*axis]).collect();
        let strides: Vec<usize> = axes.iter().map(|axis| strides[*axis]).collect();
        let mut places = vec![0];
        for (size, stride) in shape.iter().zip(&strides) {
            places = places.iter().flat_map(|at| (0..*size).map(move |i| at + i * stride)).collect();
        }
        Self { dtype: self.dtype.clone(), numbers: self.numbers.take(&places), shape }
    }
}

fn content(path: &Path, name: &str, why: impl std::fmt::Display) -> DataError {
    let why = if name.is_empty() { why.to_string() } else { format!("array {name}: {why}") };
    DataError::Content { path: path.to_path_buf(), why }
}

/// Reads a `.npy` file, zipped with gzip or not.
pub fn read(path: &Path) -> Result<Array, DataError> {
    parse(path, "", &raw::read(path, raw::MOST_BYTES)?)
}

/// Reads the arrays of an `.npz` archive: for each list of names, the first that is there, if one is.
pub fn read_archive(path: &Path, wanted: &[&[&str]]) -> Result<Vec<Option<(String, Array)>>, DataError> {
    archive(path, raw::read(path, raw::MOST_BYTES)?, wanted)
}

/// The same from the bytes of an archive; `path` is named in errors.
pub fn archive(
    path: &Path,
    bytes: Vec<u8>,
    wanted: &[&[&str]],
) -> Result<Vec<Option<(String, Array)>>, DataError> {
    let damaged = |error: ZipError| content(path, "", format!("not a whole .npz archive: {error}"));
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(damaged)?;
    let mut found = Vec::new();
    for names in wanted {
        let mut array = None;
        for name in *names {
            let mut file = match archive.by_name(&format!("{name}.npy")) {
                Ok(file) => file,
                Err(ZipError::FileNotFound) => continue,
                Err(error) => return Err(damaged(error)),
            };
            let mut bytes = Vec::new();
            // Memory grows with what is read, not with what the archive claims.
            file.by_ref()
                .take(raw::MOST_BYTES)
                .read_to_end(&mut bytes)
                .map_err(|error| content(path, name, format!("damaged ({error})")))?;
            array = Some(((*name).to_string(), parse(path, name, &bytes)?));
            break;
        }
        found.push(array);
    }
    Ok(found)
}

/// The names of the arrays in an archive, for messages.
pub(crate) fn names(path: &Path) -> Result<Vec<String>, DataError> {
    let bytes = raw::read(path, raw::MOST_BYTES)?;
    let archive = ZipArchive::new(Cursor::new(bytes)).map_err(|error| content(path, "", error))?;
    let name = |raw: &[u8]| String::from_utf8_lossy(raw).trim_end_matches(".npy").to_string();
    Ok(archive.file_names_raw().take(20).map(name).collect())
}

/// Parses the bytes of one array; `path` and `name` are named in errors.
pub fn parse(path: &Path, name: &str, bytes: &[u8]) -> Result<Array, DataError> {
    let (text, start) = header(path, name, bytes)?;
    let Header { dtype, fortran, shape } =
        Header::parse(&text).map_err(|why| content(path, name, format!("its header {why}")))?;
    let sizes: Vec<String> = shape.iter().map(ToString::to_string).collect();
    // What the file calls its type is any text: it must not break the line, nor reach a terminal as a command.
    let named: String = dtype.chars().take(40).collect();
    let said = format!("dtype {}, shape ({})", named.escape_debug(), sizes.join(", "));
    let Some(kind) = Kind::of(&dtype) else {
        return Err(content(
            path,
            name,
            format!("{said}: only bool, integers, float32 and float64 are read; convert it with astype"),
        ));
    };
    let count = shape.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
    let data = &bytes[start..];
    match count.and_then(|count| count.checked_mul(kind.size)) {
        Some(expected) if expected == data.len() => {}
        expected => {
            let expected =
                expected.map_or("more than memory can hold".to_string(), |bytes| bytes.to_string());
            let why = format!("{said} takes {expected} bytes, the file holds {}", data.len());
            return Err(content(path, name, why));
        }
    }
    let numbers = kind.numbers(data).map_err(|why| content(path, name, format!("{said}: {why}")))?;
    if !fortran || shape.len() < 2 {
        return Ok(Array { dtype, shape, numbers });
    }
    // Written with the first index running fastest: the transpose of an array in the order of C.
    let axes: Vec<usize> = (0..shape.len()).rev().collect();
    Ok(Array { dtype, shape: shape.into_iter().rev().collect(), numbers }.transposed(&axes))
}

/// The text of the header, and where the values start.
fn header(path: &Path, name: &str, bytes: &[u8]) -> Result<(String, usize), DataError> {
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return Err(DataError::Magic {
            path: path.to_path_buf(),
            expected: "a NumPy array",
            found: raw::opening(bytes),
        });
    };
    let (length, before) = match *rest {
        [1, _, a, b, ..] => (u32::from(u16::from_le_bytes([a, b])), 4),
        [2 | 3, _, a, b, c, d, ..] => (u32::from_le_bytes([a, b, c, d]), 6),
        _ => return Err(content(path, name, "truncated in its header, or of an unknown version")),
    };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > LONGEST_HEADER {
        return Err(content(path, name, format!("a header of {length} bytes; {LONGEST_HEADER} at most")));
    }
    match rest.get(before..before + length) {
        Some(text) => {
            Ok((String::from_utf8_lossy(text).into_owned(), bytes.len() - rest.len() + before + length))
        }
        None => Err(content(path, name, "truncated in its header")),
    }
}

struct Header {
    dtype: String,
    fortran: bool,
    shape: Vec<usize>,
}

impl Header {
    /// Reads `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }` with its keys in any order.
    fn parse(text: &str) -> Result<Self, String> {
        let after = |key: &str| {
            let quoted = [format!("'{key}':"), format!("\"{key}\":")];
            let found = quoted.iter().find_map(|key| text.find(key.as_str()).map(|at| at + key.len()));
            found.map(|at| text[at..].trim_start()).ok_or_else(|| format!("has no {key}"))
        };
        let descr = after("descr")?;
        let quote = descr.chars().next().filter(|quote| ['\'', '"'].contains(quote));
        let dtype = quote
            .and_then(|quote| descr[1..].split_once(quote))
            .map(|(dtype, _)| dtype.to_string())
            .ok_or("describes a record, not numbers")?;
        let fortran = match after("fortran_order")? {
            text if text.starts_with("True") => true,
            text if text.starts_with("False") => false,
            _ => return Err("has a fortran_order that is neither True nor False".to_string()),
        };
        let inside = after("shape")?.strip_prefix('(').and_then(|text| text.split_once(')'));
        let (sizes, _) = inside.ok_or("has a shape that is not a tuple")?;
        let sizes = sizes.split(',').map(|size| size.trim().trim_end_matches('L'));
        let shape: Result<Vec<usize>, _> = sizes.filter(|size| !size.is_empty()).map(str::parse).collect();
        let shape = shape.map_err(|_| "has a shape that is not a tuple of sizes")?;
        if shape.len() > 8 {
            return Err(format!("has {} dimensions, at most 8 are read", shape.len()));
        }
        Ok(Self { dtype, fortran, shape })
    }
}

/// A type of numbers that is read.
#[derive(Clone, Copy)]
struct Kind {
    letter: u8,
    size: usize,
    big_endian: bool,
}

impl Kind {
    fn of(dtype: &str) -> Option<Self> {
        let [order @ (b'<' | b'>' | b'|' | b'='), letter, size] = *dtype.as_bytes() else { return None };
        let size = usize::from(size.wrapping_sub(b'0'));
        let known = matches!((letter, size), (b'b', 1) | (b'i' | b'u', 1 | 2 | 4 | 8) | (b'f', 4 | 8));
        // A single byte has no order; `=` is the order of the machine that wrote the file, never written.
        (known && order != b'=').then_some(Self { letter, size, big_endian: order == b'>' })
    }

    fn numbers(self, data: &[u8]) -> Result<Numbers, String> {
        if let (b'b' | b'u', 1) = (self.letter, self.size) {
            return Ok(Numbers::Bytes(data.to_vec()));
        }
        // The bits of each number, in the lowest bytes of a word.
        let words = data.chunks_exact(self.size).map(|bytes| {
            let push = |word: u64, byte: &u8| word << 8 | u64::from(*byte);
            if self.big_endian { bytes.iter().fold(0, push) } else { bytes.iter().rev().fold(0, push) }
        });
        Ok(match (self.letter, self.size) {
            (b'f', 4) => Numbers::Singles(words.map(|bits| f32::from_bits(bits as u32)).collect()),
            (b'f', _) => Numbers::Doubles(words.map(f64::from_bits).collect()),
            (b'i', size) => {
                // The sign is the highest bit of `size` bytes.
                let unused = 64 - 8 * size as u32;
                Numbers::Integers(words.map(|bits| ((bits << unused) as i64) >> unused).collect())
            }
            _ => {
                let whole: Result<Vec<i64>, _> = words.map(i64::try_from).collect();
                Numbers::Integers(whole.map_err(|_| "an integer above 2⁶³ − 1".to_string())?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let length = (header.len() as u16).to_le_bytes();
        [MAGIC, &[1, 0], &length, header.as_bytes(), data].concat()
    }

    fn parsed(dtype: &str, fortran: &str, shape: &str, data: &[u8]) -> Result<Array, String> {
        let header = format!("{{'descr': '{dtype}', 'fortran_order': {fortran}, 'shape': {shape}, }}");
        parse(Path::new("a.npy"), "x", &file(&header, data)).map_err(|error| error.to_string())
    }

    #[test]
    fn every_type_in_both_orders() {
        let numbers = |dtype: &str, data: &[u8]| parsed(dtype, "False", "(2,)", data).unwrap().numbers;
        assert_eq!(numbers("|u1", &[0, 255]), Numbers::Bytes(vec![0, 255]));
        assert_eq!(numbers("|b1", &[0, 1]), Numbers::Bytes(vec![0, 1]));
        assert_eq!(numbers("|i1", &[0x80, 1]), Numbers::Integers(vec![-128, 1]));
        assert_eq!(numbers("<i2", &[0xfe, 0xff, 1, 2]), Numbers::Integers(vec![-2, 513]));
        assert_eq!(numbers(">i2", &[0xff, 0xfe, 2, 1]), Numbers::Integers(vec![-2, 513]));
        assert_eq!(numbers("<u4", &[1, 0, 0, 0x80, 7, 0, 0, 0]), Numbers::Integers(vec![0x8000_0001, 7]));
        for x in [1.5_f32, -3.25e-20] {
            let bytes = [x.to_be_bytes(), (2.0 * x).to_be_bytes()].concat();
            assert_eq!(numbers(">f4", &bytes), Numbers::Singles(vec![x, 2.0 * x]));
        }
        let bytes = [0.1_f64.to_le_bytes(), f64::MAX.to_le_bytes()].concat();
        assert_eq!(numbers("<f8", &bytes), Numbers::Doubles(vec![0.1, f64::MAX]));
        let large = [i64::MIN.to_le_bytes(), i64::MAX.to_le_bytes()].concat();
        assert_eq!(numbers("<i8", &large), Numbers::Integers(vec![i64::MIN, i64::MAX]));
        assert!(parsed("<u8", "False", "(2,)", &large).unwrap_err().contains("above 2⁶³"));
    }

    #[test]
    fn fortran_order_is_turned_around() {
        let c = parsed("|u1", "False", "(2, 3)", &[1, 2, 3, 4, 5, 6]).unwrap();
        let fortran = parsed("|u1", "True", "(2, 3)", &[1, 4, 2, 5, 3, 6]).unwrap();
        assert_eq!(c, fortran);
        // Channels first to channels last: value (n, c, h, w) moves to (n, h, w, c).
        let first = parsed("|u1", "False", "(1, 2, 1, 3)", &[1, 2, 3, 11, 12, 13]).unwrap();
        let last = first.transposed(&[0, 2, 3, 1]);
        assert_eq!((last.shape, last.numbers), (vec![1, 1, 3, 2], Numbers::Bytes(vec![1, 11, 2, 12, 3, 13])));
    }

    #[test]
    fn hostile_headers_are_refused_in_words() {
        let refused = |dtype: &str, shape: &str| parsed(dtype, "False", shape, &[0; 8]).unwrap_err();
        assert!(refused("<f4", "(3,)").contains("takes 12 bytes, the file holds 8"));
        let vast = refused("<f4", "(18446744073709551615, 2)");
        assert!(vast.contains("more than memory can hold"), "{vast}");
        for dtype in ["<c8", "|O", "<U3", "<f2", "<f9", "", "<i3", "|\n\u{1b}[2Ju2"] {
            let text = refused(dtype, "(2,)");
            assert!(!text.contains(char::is_control), "{text:?}");
            assert!(text.contains("a.npy: array x: dtype") && text.contains("astype"), "{text}");
        }
        assert!(refused("<f4", "((((").contains("not a tuple"));
        assert!(refused("<f4", "(-1,)").contains("tuple of sizes"));
        let nested = "[".repeat(5000);
        assert!(parse(Path::new("a"), "", &file(&nested, &[])).is_err());
        assert!(parse(Path::new("a"), "", &file(&" ".repeat(20_000), &[])).is_err());
        assert!(parse(Path::new("a"), "", b"\x93NUMPY\x02\x00").is_err());
        assert!(parse(Path::new("a"), "", b"PK\x03\x04").unwrap_err().to_string().contains("NumPy"));
    }
}
