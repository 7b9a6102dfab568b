//! Almost valid files: what a disk, a careless user or an attacker makes of a good one. A changed valid file
//! gets much further into a parser than random bytes do.

#![allow(dead_code, reason = "each test file uses part of it")]

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::RngSeed;

/// This many cases, the same ones every time: failures can be repeated, and a passing test keeps passing.
pub fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(0x000f_a017_5eed),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

#[derive(Clone, Debug)]
enum Change {
    Flip(Index, u8),
    Put(Index, u8),
    Cut(Index),
    Remove(Index, usize),
    Repeat(Index, usize),
    Insert(Index, Vec<u8>),
    /// One word replaced by another: a number, a name, `true`.
    Word(Index, String),
    /// A line moved to another place.
    Line(Index, Index),
}

/// What numbers, names and texts may turn into: the limits of every type, and whatever means something to a
/// format.
const WORDS: [&str; 38] = [
    "0",
    "-0.0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "10",
    "0.5",
    "1e-310",
    "1e308",
    "-1e308",
    "nan",
    "inf",
    "-inf",
    "255",
    "256",
    "65536",
    "2147483648",
    "4294967295",
    "4294967296",
    "8589934592",
    "9007199254740993",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999999999999999999",
    "true",
    "null",
    "\"\"",
    "?",
    "[]",
    "{}",
    "\u{feff}",
    "ß\u{301}",
    "\"\\n\"",
    "\u{0}",
];

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    let bytes =
        || select(vec![0, 1, 8, b'\n', b'\r', b'"', b',', b'=', b'[', b']', b'{', b' ', 0x7f, 0x80, 0xff]);
    prop_oneof![
        2 => (at(), 0..8_u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        2 => (at(), bytes()).prop_map(|(at, byte)| Change::Put(at, byte)),
        1 => at().prop_map(Change::Cut),
        1 => (at(), 1..40_usize).prop_map(|(at, length)| Change::Remove(at, length)),
        1 => (at(), 1..400_usize).prop_map(|(at, length)| Change::Repeat(at, length)),
        1 => (at(), prop::collection::vec(any::<u8>(), 1..9))
            .prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        6 => (at(), select(&WORDS[..])).prop_map(|(at, word)| Change::Word(at, word.to_string())),
        1 => (at(), at()).prop_map(|(from, to)| Change::Line(from, to)),
    ]
}

fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+-._".contains(&byte)
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let length = bytes.len();
        match self {
            Change::Flip(at, bit) => bytes[at.index(length)] ^= 1 << bit,
            Change::Put(at, byte) => bytes[at.index(length)] = *byte,
            Change::Cut(at) => bytes.truncate(at.index(length)),
            Change::Remove(at, count) => {
                let at = at.index(length);
                bytes.drain(at..(at + count).min(length));
            }
            Change::Repeat(at, count) => {
                let at = at.index(length);
                let part = bytes[at..(at + count).min(length)].to_vec();
                bytes.splice(at..at, part);
            }
            Change::Insert(at, more) => {
                let at = at.index(length);
                bytes.splice(at..at, more.iter().copied());
            }
            Change::Word(at, word) => {
                let words: Vec<(usize, usize)> = words(bytes);
                if !words.is_empty() {
                    let (start, end) = words[at.index(words.len())];
                    bytes.splice(start..end, word.bytes());
                }
            }
            Change::Line(from, to) => {
                let mut lines: Vec<Vec<u8>> =
                    bytes.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
                let line = lines.remove(from.index(lines.len()));
                lines.insert(to.index(lines.len() + 1), line);
                *bytes = lines.concat();
            }
        }
    }
}

/// Where the words of a text begin and end.
fn words(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut words = Vec::new();
    let mut start = None;
    for (at, &byte) in bytes.iter().chain([&b' ']).enumerate() {
        match (in_word(byte), start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                words.push((from, at));
                start = None;
            }
            _ => {}
        }
    }
    words
}

/// One of the files with one to four changes.
pub fn changed(files: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    (select(files), prop::collection::vec(change(), 1..5)).prop_map(|(mut bytes, changes)| {
        for change in changes {
            change.apply(&mut bytes);
        }
        bytes
    })
}

/// The same for text; invalid UTF-8 is replaced.
pub fn changed_text(files: Vec<String>) -> impl Strategy<Value = String> {
    changed(files.into_iter().map(String::into_bytes).collect())
        .prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}
