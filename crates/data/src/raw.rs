//! The bytes of a file, unzipped if necessary, and never more than requested.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use sha2::{Digest, Sha256};

use crate::error::DataError;

/// The first bytes of gzip data. They decide, not the file name: people unzip and rename.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The largest file that is read whole when its size is not known beforehand.
pub(crate) const MOST_BYTES: u64 = 1 << 33;

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> DataError + '_ {
    |source| DataError::Io { path: path.to_path_buf(), source }
}

/// A reader of the unzipped bytes, and whether they are zipped.
pub(crate) fn open(path: &Path) -> Result<(Box<dyn Read>, bool), DataError> {
    let file = File::open(path).map_err(io(path))?;
    let mut file = BufReader::with_capacity(1 << 16, file);
    let zipped = file.fill_buf().map_err(io(path))?.starts_with(&GZIP);
    // The multi-member decoder refuses trailing data that is not another gzip member.
    Ok(if zipped { (Box::new(MultiGzDecoder::new(file)), true) } else { (Box::new(file), false) })
}

/// All unzipped bytes of a file that must have at most `limit` of them. Memory grows with what is
/// read, not with what any header claims, and stops at the limit.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>, DataError> {
    let (reader, zipped) = open(path)?;
    let mut bytes = Vec::new();
    reader.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| {
        if zipped {
            DataError::Gzip { path: path.to_path_buf(), why: error.to_string() }
        } else {
            io(path)(error)
        }
    })?;
    if bytes.len() as u64 > limit {
        return Err(DataError::TooLong { path: path.to_path_buf(), expected: limit });
    }
    Ok(bytes)
}

/// SHA-256 in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The first bytes of a file, for an error message.
pub(crate) fn opening(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "nothing: it is empty".to_string();
    }
    let hex: Vec<String> = bytes.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("bytes {}", hex.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha256_of_the_standard() {
        // FIPS 180-2, appendix B.1.
        assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
