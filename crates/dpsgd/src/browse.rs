//! What a page about mechanisms and runs shows, as JSON: `dpsgd ui` serves these values, and another front end
//! can.
//!
//! Questions are the queries of web addresses. Every answer only reads.

pub mod explore;
pub mod runs;

use serde_json::{Value, json};

/// The names and values behind the question mark.
pub fn parameters(url: &str) -> impl Iterator<Item = (String, String)> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    pairs(query)
}

/// Names and values, decoded.
pub(crate) fn pairs(query: &str) -> impl Iterator<Item = (String, String)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name), decoded(value))
    })
}

/// Percent-decoded; what is not valid stays as it is.
pub fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let hex = bytes.get(i + 1..i + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match (bytes[i], hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                i += 2;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        i += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// An object with nothing but a reason.
pub(crate) fn refused(why: impl ToString) -> Value {
    json!({ "error": why.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_decoded() {
        let found: Vec<_> = parameters("/a?run=sigma%3D1%26groups%3D5&x=a+b%").collect();
        assert_eq!(found, [("run".into(), "sigma=1&groups=5".into()), ("x".into(), "a b%".into())]);
        assert_eq!(decoded("%2e%2E/%zz%"), "../%zz%");
    }
}
