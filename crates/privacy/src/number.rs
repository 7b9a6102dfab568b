//! Numbers in files, including those JSON cannot express: `"inf"`, `"-inf"` and `"nan"` are written as
//! strings.

use serde::{Deserialize, Deserializer, Serializer, de};

/// For `#[serde(with = "crate::number")]` on fields that may be infinite.
pub(crate) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.is_finite() {
        serializer.serialize_f64(*value)
    } else if value.is_nan() {
        serializer.serialize_str("nan")
    } else {
        serializer.serialize_str(if *value > 0.0 { "inf" } else { "-inf" })
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Finite(f64),
    Word(String),
}

/// The counterpart of [`serialize`].
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    match Written::deserialize(deserializer)? {
        Written::Finite(value) => Ok(value),
        Written::Word(word) => match word.as_str() {
            "inf" => Ok(f64::INFINITY),
            "-inf" => Ok(f64::NEG_INFINITY),
            "nan" => Ok(f64::NAN),
            other => {
                Err(de::Error::custom(format!("{other}: must be a number, \"inf\", \"-inf\" or \"nan\"")))
            }
        },
    }
}
