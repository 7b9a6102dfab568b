//! What stands in place of a frame too large for one message: where its parts are.

use sha2::{Digest, Sha256};

/// Bytes of a part.
pub const PART: usize = 1 << 20;
/// The first bytes of a pointer; no frame begins so.
const MAGIC: &[u8] = b"dpsgd-parts-1 ";

/// What stands in place of a frame that was cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// Bytes of the whole.
    pub bytes: usize,
    /// SHA-256 of the whole, in hexadecimal.
    pub digest: String,
    /// Where its parts are: letters and digits.
    pub place: String,
}

impl Pointer {
    /// The pointer to a frame at a place; without one, at a place named by its digest.
    pub fn to(frame: &[u8], place: Option<&str>) -> Self {
        let digest = digest(frame);
        let place = place.unwrap_or(&digest).to_string();
        Self { bytes: frame.len(), digest, place }
    }

    /// The number of parts.
    pub fn parts(&self) -> usize {
        self.bytes.div_ceil(PART)
    }

    /// As the payload of a message.
    pub fn encode(&self) -> Vec<u8> {
        let Self { bytes, digest, place } = self;
        [MAGIC, format!("{bytes} {digest} {place}").as_bytes()].concat()
    }

    /// Reads a payload; `None` for a frame. `limit` is the length of the longest frame there can be.
    pub fn decode(payload: &[u8], limit: usize) -> Option<Self> {
        let text = std::str::from_utf8(payload.strip_prefix(MAGIC)?).ok()?;
        let (bytes, rest) = text.split_once(' ')?;
        let (digest, place) = rest.split_once(' ')?;
        let bytes: usize = bytes.parse().ok()?;
        let hexadecimal = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        // A place becomes part of a subject: no dots, no wildcards.
        let plain = (1..=64).contains(&place.len()) && place.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let good = bytes <= limit && hexadecimal && plain;
        good.then(|| Self { bytes, digest: digest.into(), place: place.into() })
    }

    /// Whether it points to these bytes.
    pub fn is_of(&self, frame: &[u8]) -> bool {
        frame.len() == self.bytes && digest(frame) == self.digest
    }
}

fn digest(frame: &[u8]) -> String {
    Sha256::digest(frame).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_survives_and_nothing_else_is_one() {
        let pointer = Pointer::to(&vec![7; 3 * PART + 1], Some("a"));
        assert_eq!(pointer.parts(), 4);
        let encoded = pointer.encode();
        assert_eq!(Pointer::decode(&encoded, 4 * PART), Some(pointer.clone()));
        assert_eq!(Pointer::decode(&encoded, 3 * PART), None, "longer than any frame");
        for cut in 0..encoded.len() {
            assert_eq!(Pointer::decode(&encoded[..cut], 4 * PART), None, "cut at {cut}");
        }
        for place in [">", "*", "a.b", "", "a b", "ä"] {
            let foreign = Pointer { place: place.into(), ..pointer.clone() }.encode();
            assert_eq!(Pointer::decode(&foreign, 4 * PART), None, "{place:?} is not a place");
        }
    }
}
