//! Reading TOML files that people write: settings and networks.

#[cfg(test)]
mod tests;

use std::path::Path;

use serde::de::DeserializeOwned;

use super::{SettingsError, suggest};

/// Reads a TOML file.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<T, SettingsError> {
    let bytes =
        std::fs::read(path).map_err(|source| SettingsError::Unreadable { path: path.to_owned(), source })?;
    parse(path, &bytes)
}

/// Reads the content of the TOML file at `path`, which is named in errors.
pub fn parse<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T, SettingsError> {
    let refuse = |line, why: String| SettingsError::File { path: path.to_owned(), line, why };
    let text = std::str::from_utf8(bytes).map_err(|error| refuse(None, error.to_string()))?;
    toml::from_str(text).map_err(|error| {
        // Bytes, not text: the place of an error need not be the start of a character.
        let before = error.span().map(|span| &bytes[..span.start.min(bytes.len())]);
        let line = before.map(|before| 1 + before.iter().filter(|&&byte| byte == b'\n').count());
        refuse(line, suggest::explained(error.message()))
    })
}
