//! The bytes that travel: `docs/protocol.md` is the specification, `tests/vectors` holds examples.
//!
//! Every frame is a fixed header, the values, and the SHA-256 of everything before it; all numbers are
//! little-endian. A decoder knows the length of a frame before it looks at it, so nothing is allocated for a
//! frame of another length, and no decoder panics, whatever it is given.

pub mod model;
pub mod pointer;
pub mod state;
pub mod update;

pub use self::model::Model;
pub use self::update::Update;

use sha2::{Digest, Sha256};

use crate::reject::Reject;

/// The version of the format that is written, and the only one that is read.
pub const FORMAT: u16 = 1;
/// Values are IEEE 754 single precision.
const SINGLE: u16 = 0;
/// The length of a SHA-256.
pub(crate) const DIGEST: usize = 32;

/// Writes a frame.
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn new(magic: [u8; 4], capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(capacity);
        bytes.extend(magic);
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend(SINGLE.to_le_bytes());
        Self(bytes)
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn f32(&mut self, value: f32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn values(&mut self, values: &[f32]) -> &mut Self {
        self.0.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        self
    }

    /// The frame with its checksum.
    pub(crate) fn sealed(mut self) -> Vec<u8> {
        let digest: [u8; DIGEST] = Sha256::digest(&self.0).into();
        self.0.extend(digest);
        self.0
    }
}

/// Reads a frame; everything that runs past its end is nothing.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The body of a frame of exactly this kind.
    ///
    /// The checksum is not looked at yet: [`check`] does, after the cheap tests.
    pub(crate) fn open(magic: [u8; 4], frame: &'a [u8]) -> Option<Self> {
        let body = frame.get(..frame.len().checked_sub(DIGEST)?)?;
        let mut reader = Self(body);
        let known = reader.take(4)? == magic
            && reader.take(2)? == FORMAT.to_le_bytes()
            && reader.take(2)? == SINGLE.to_le_bytes();
        known.then_some(reader)
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn f32(&mut self) -> Option<f32> {
        self.array().map(f32::from_le_bytes)
    }

    /// This many values; the bytes are there before anything is allocated.
    pub(crate) fn values(&mut self, count: u64) -> Option<Vec<f32>> {
        let bytes = self.take(usize::try_from(count).ok()?.checked_mul(4)?)?;
        Some(bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect())
    }

    /// How many bytes are left.
    pub(crate) fn left(&self) -> usize {
        self.0.len()
    }
}

/// Whether the last 32 bytes are the SHA-256 of the others.
pub(crate) fn check(frame: &[u8]) -> Result<(), Reject> {
    let Some((body, digest)) = frame.split_last_chunk::<DIGEST>() else { return Err(Reject::Format) };
    let expected: [u8; DIGEST] = Sha256::digest(body).into();
    if expected == *digest { Ok(()) } else { Err(Reject::Checksum) }
}
