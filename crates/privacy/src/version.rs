//! The version of what is written to files.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The version that is written, and the only one that is read.
pub(crate) const VERSION: u64 = 1;

/// Written as [`VERSION`]; any other number is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version;

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(VERSION)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u64::deserialize(deserializer)? {
            VERSION => Ok(Version),
            other => Err(de::Error::custom(format!(
                "version = {other}: this release reads version {VERSION}; \
                 read the file with the release that wrote it, or a newer one"
            ))),
        }
    }
}
