//! JSON that holds its own SHA-256, so that a changed digit is noticed.

use std::path::Path;

use dpsgd_train::ledger::Digest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::Error;

/// The field with the digest of the others.
const SHA256: &str = "sha256";

/// The text of a file.
pub(crate) fn text(content: &impl Serialize) -> String {
    let mut value = json!(content);
    value[SHA256] = json!(digest(&value));
    format!("{value:#}\n")
}

/// Reads what [`text`] wrote; anything else is refused.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let refuse = |why: String| Error::file(path, why);
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    let mut value: Value = serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))?;
    let written = value.as_object_mut().and_then(|content| content.shift_remove(SHA256));
    if written != Some(json!(digest(&value))) {
        return Err(refuse(
            "is damaged: its content does not fit its SHA-256; restore it from a copy".into(),
        ));
    }
    serde_json::from_value(value).map_err(|error| refuse(error.to_string()))
}

fn digest(value: &Value) -> String {
    Digest::of(&[value.to_string().as_bytes()]).to_string()
}
