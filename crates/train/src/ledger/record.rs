//! The lines of a ledger, each bound to the one before it by its digest.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

/// A SHA-256 digest; sixty-four small hexadecimal digits in text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of `parts`, one after the other.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part);
        }
        Digest(hash.finalize().into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A text that is not a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sixty-four small hexadecimal digits")]
pub struct NoDigest;

impl FromStr for Digest {
    type Err = NoDigest;

    /// Reads what `Display` writes, exactly.
    fn from_str(text: &str) -> Result<Self, NoDigest> {
        let mut digest = Digest::default();
        for (i, byte) in digest.0.iter_mut().enumerate() {
            let two = text.get(2 * i..2 * i + 2).ok_or(NoDigest)?;
            *byte = u8::from_str_radix(two, 16).map_err(|_| NoDigest)?;
        }
        if digest.to_string() == text { Ok(digest) } else { Err(NoDigest) }
    }
}

/// A record of a certain ledger: its number and the digest of everything up to and including it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LedgerPosition {
    /// Counted from zero, the header.
    pub sequence: u64,
    /// The digest at the end of the record's line.
    pub digest: Digest,
}

/// What a record after the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// The rounds `from` to `to`, exclusive, count as spent from now on.
    Charge { from: u64, to: u64 },
    /// The process stopped when it was asked to: the rounds from `at` on did not happen, though charged.
    Stop { at: u64 },
    /// The run continues in a new process; no round before `at` may happen any more.
    Resume { at: u64 },
    /// The private test set is measured now, once; no process may do so again.
    Measure { at: u64 },
    /// No further round will happen.
    Finish { at: u64 },
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Record::Charge { from, to } => write!(f, "charge {from} {to}"),
            Record::Stop { at } => write!(f, "stop {at}"),
            Record::Resume { at } => write!(f, "resume {at}"),
            Record::Measure { at } => write!(f, "measure {at}"),
            Record::Finish { at } => write!(f, "finish {at}"),
        }
    }
}

impl Record {
    /// Reads what `Display` writes.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.split(' ').collect();
        Some(match fields[..] {
            ["charge", from, to] => Record::Charge { from: from.parse().ok()?, to: to.parse().ok()? },
            ["stop", at] => Record::Stop { at: at.parse().ok()? },
            ["resume", at] => Record::Resume { at: at.parse().ok()? },
            ["measure", at] => Record::Measure { at: at.parse().ok()? },
            ["finish", at] => Record::Finish { at: at.parse().ok()? },
            _ => return None,
        })
    }
}

/// The line with number `sequence` that says `text`, after a line with digest `previous`; and where
/// the ledger then stands.
pub(crate) fn line(sequence: u64, text: &str, previous: &Digest) -> (String, LedgerPosition) {
    let body = format!("{sequence} {text}");
    let digest = Digest::of(&[&previous.0, body.as_bytes()]);
    (format!("{body} {digest}\n"), LedgerPosition { sequence, digest })
}

/// Takes a line (without its end) apart into what it says and its digest, or says what is wrong.
pub(crate) fn open<'a>(
    line: &'a [u8],
    sequence: u64,
    previous: &Digest,
) -> Result<(&'a str, Digest), &'static str> {
    let split = line.iter().rposition(|&byte| byte == b' ').ok_or("it is not a ledger record")?;
    let (body, written) = (&line[..split], &line[split + 1..]);
    let digest = Digest::of(&[&previous.0, body]);
    if written != digest.to_string().as_bytes() {
        return Err("its digest does not match its content and the line before it");
    }
    let text = std::str::from_utf8(body).map_err(|_| "it is not UTF-8 text")?;
    match text.split_once(' ') {
        Some((number, text)) if number == sequence.to_string() => Ok((text, digest)),
        _ => Err("its number is not that of its place"),
    }
}

const HEAD: &str = "dpsgd-ledger-head=1";

/// The content of the file that remembers the last acknowledged record.
pub(crate) fn head(position: &LedgerPosition) -> String {
    line(position.sequence, &format!("{HEAD} {}", position.digest), &Digest::default()).0
}

/// Reads what [`head`] writes, exactly, or nothing.
pub(crate) fn parse_head(bytes: &[u8]) -> Option<LedgerPosition> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut fields = text.split(' ');
    let sequence = fields.next()?.parse().ok()?;
    let digest = fields.nth(1)?.parse().ok()?;
    let position = LedgerPosition { sequence, digest };
    (head(&position) == text).then_some(position)
}
