//! The text of a table, opened once to read it and again to find the line of an error.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use crate::error::DataError;
use crate::raw;

/// How a file differs from CSV with a header.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quirks {
    /// The names of the columns of a file without a header.
    pub(crate) names: Option<&'static [&'static str]>,
    /// A line that starts with it is a comment.
    pub(crate) comment: Option<u8>,
    /// A full stop at the end of a label is not part of it.
    pub(crate) label_stop: bool,
}

/// A table and how to read it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    /// The file, which errors name.
    pub(crate) path: &'a Path,
    /// Its contents, if they have been read already.
    pub(crate) bytes: Option<&'a [u8]>,
    pub(crate) quirks: Quirks,
}

impl<'a> Source<'a> {
    pub(crate) fn file(path: &'a Path) -> Self {
        Self { path, bytes: None, quirks: Quirks::default() }
    }

    pub(crate) fn open(&self) -> Result<Box<dyn Read + 'a>, DataError> {
        match self.bytes {
            Some(bytes) => Ok(Box::new(bytes)),
            None => Ok(raw::open(self.path)?.0),
        }
    }

    pub(crate) fn content(&self, why: String) -> DataError {
        DataError::Content { path: self.path.to_path_buf(), why }
    }

    /// An error in the record at a position.
    ///
    /// `csv` notes a position before it skips what precedes a record: the second half of the last line's
    /// CRLF, blank lines, comments. So the lines are counted here, which costs time only when there is an
    /// error.
    pub(crate) fn line(&self, position: Option<&csv::Position>, why: String) -> DataError {
        let byte = position.map_or(0, csv::Position::byte);
        let counted = self.open().ok().and_then(|input| line_at(input, byte, self.quirks.comment).ok());
        let line = counted.unwrap_or_else(|| position.map_or(1, csv::Position::line));
        DataError::Line { path: self.path.to_path_buf(), line, why }
    }
}

/// The line, counted from 1, of the first record that starts at `byte` or later.
fn line_at(input: impl Read, byte: u64, comment: Option<u8>) -> std::io::Result<u64> {
    let mut input = BufReader::new(input);
    let mut line = 1;
    let mut before = (&mut input).take(byte);
    loop {
        let buffer = before.fill_buf()?;
        if buffer.is_empty() {
            break;
        }
        line += buffer.iter().filter(|byte| **byte == b'\n').count() as u64;
        let length = buffer.len();
        before.consume(length);
    }
    let mut in_comment = false;
    for byte in input.bytes() {
        match byte? {
            b'\n' => {
                line += 1;
                in_comment = false;
            }
            b'\r' => {}
            byte if in_comment || Some(byte) == comment => in_comment = true,
            _ => break,
        }
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_an_editor_shows() {
        let text = b"a,b\r\n1,2\r\n\r\n|note\r\n3,4\r\n";
        let at = |byte| line_at(&text[..], byte, Some(b'|')).unwrap();
        assert_eq!((at(0), at(4), at(5)), (1, 2, 2));
        // After the CR of the second line come its LF, a blank line and a comment.
        assert_eq!((at(9), at(10)), (5, 5));
        assert_eq!(line_at(&b"x\ny\nz"[..], 2, None).unwrap(), 2);
    }
}
