//! A noised update on its way to the server.

use super::{DIGEST, Reader, Writer, check};
use crate::name::{ClientId, RunId};
use crate::reject::Reject;
use crate::terms::Agreed;

const MAGIC: [u8; 4] = *b"DPFU";
const HEADER: usize = 64;

/// The noised update Ū/m of one round of one client.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// The run it belongs to.
    pub run: RunId,
    /// Who sends it.
    pub client: ClientId,
    /// The round of the client's plan, from 0.
    pub round: u64,
    /// The version of the model from which all groups of the round started.
    pub base: u64,
    /// η of the round, as the terms have it.
    pub step: f32,
    /// Ū/m.
    pub values: Vec<f32>,
}

/// The length of the frame of an update with this many values.
pub fn bytes(dimension: usize) -> usize {
    HEADER + 4 * dimension + DIGEST
}

impl Update {
    /// The frame.
    pub fn encode(&self) -> Vec<u8> {
        encode(self.run, (self.client, self.round, self.base), self.step, &self.values)
    }
}

/// The frame of an update, from its parts.
pub fn encode(run: RunId, (client, round, base): (ClientId, u64, u64), step: f32, values: &[f32]) -> Vec<u8> {
    let mut frame = Writer::new(MAGIC, bytes(values.len()));
    frame.bytes(&run.0).u64(client.0).u64(round).u64(base).f32(step).bytes(&[0; 4]);
    frame.u64(values.len() as u64).values(values);
    frame.sealed()
}

/// Reads a frame that a client sent, and checks everything that the frame alone shows: format, length,
/// checksum, run and dimension.
///
/// # Guarantee
///
/// Never panics. Allocates only after the length is known to be that of the terms and the checksum to fit.
pub fn decode(frame: &[u8], terms: &Agreed) -> Result<Update, Reject> {
    let mut reader = Reader::open(MAGIC, frame).ok_or(Reject::Format)?;
    let mut header = || {
        let run = RunId(reader.array()?);
        let (client, round, base) = (ClientId(reader.u64()?), reader.u64()?, reader.u64()?);
        let step = reader.f32()?;
        let reserved: [u8; 4] = reader.array()?;
        Some((run, client, round, base, step, reserved, reader.u64()?))
    };
    let (run, client, round, base, step, reserved, dimension) = header().ok_or(Reject::Format)?;
    if reserved != [0; 4] || dimension.checked_mul(4) != Some(reader.left() as u64) {
        return Err(Reject::Format);
    }
    if run != terms.run() {
        return Err(Reject::Run);
    }
    if dimension != terms.dimension {
        return Err(Reject::Dimension);
    }
    check(frame)?;
    let values = reader.values(dimension).ok_or(Reject::Format)?;
    Ok(Update { run, client, round, base, step, values })
}
