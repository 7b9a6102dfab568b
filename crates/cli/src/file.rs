//! Reading what a user wrote in a TOML file: settings of a run, of training, or a network.

#[cfg(test)]
mod tests;

use std::path::Path;

use serde::de::DeserializeOwned;

use crate::Failure;

/// Reads a TOML file.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let text = std::fs::read(path);
    parse(path, &text.map_err(|error| Failure::Input(format!("{}: {error}", path.display())))?)
}

/// Reads the content of the TOML file at `path`, which is named in errors.
pub fn parse<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T, Failure> {
    let refuse = |why: String| Failure::Input(format!("{}: {why}", path.display()));
    let text = std::str::from_utf8(bytes).map_err(|error| refuse(error.to_string()))?;
    toml::from_str(text).map_err(|error| {
        // Bytes, not text: where an error is need not be where a character begins.
        let before = error.span().map(|span| &bytes[..span.start.min(bytes.len())]);
        let line = before.map(|before| 1 + before.iter().filter(|&&byte| byte == b'\n').count());
        let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        refuse(format!("{place}{}", error.message()))
    })
}
