//! The global model on its way to the clients.

use super::{DIGEST, Reader, Writer, check};
use crate::name::RunId;
use crate::terms::Agreed;

const MAGIC: [u8; 4] = *b"DPFM";
const HEADER: usize = 48;

/// The global model of a version.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The run it belongs to.
    pub run: RunId,
    /// How many steps the server has made.
    pub version: u64,
    /// The place in the log of updates up to which it has read.
    pub sequence: u64,
    /// ŵ.
    pub weights: Vec<f32>,
}

/// Why a client refuses a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelRefused {
    /// Not a frame of a model in a format we know.
    #[error("the frame is not a model in format 1")]
    Format,
    /// The SHA-256 at its end does not fit.
    #[error("the frame's checksum does not fit: it was damaged on its way")]
    Checksum,
    /// Of another run.
    #[error("the model belongs to another run: server and client hold different terms")]
    Run,
    /// It has the wrong number of parameters.
    #[error("the model has {given} parameters where the terms have {expected}")]
    Dimension {
        /// What it has.
        given: u64,
        /// What the terms have.
        expected: u64,
    },
    /// A parameter is infinite or not a number.
    #[error("a parameter of the model is not a finite number")]
    NotFinite,
}

/// The length of the frame of a model with this many parameters.
pub fn bytes(dimension: usize) -> usize {
    HEADER + 4 * dimension + DIGEST
}

impl Model {
    /// The frame.
    pub fn encode(&self) -> Vec<u8> {
        encode(self.run, self.version, self.sequence, &self.weights)
    }
}

/// The frame of a model, from its parts.
pub fn encode(run: RunId, version: u64, sequence: u64, weights: &[f32]) -> Vec<u8> {
    let mut frame = Writer::new(MAGIC, bytes(weights.len()));
    frame.bytes(&run.0).u64(version).u64(sequence).u64(weights.len() as u64).values(weights);
    frame.sealed()
}

/// Reads a frame that a server sent.
///
/// # Guarantee
///
/// Never panics. Allocates only after the length is known to be that of the terms and the checksum to fit.
/// What is returned is of the run, has the right number of parameters, and all of them are finite.
pub fn decode(frame: &[u8], terms: &Agreed) -> Result<Model, ModelRefused> {
    let mut reader = Reader::open(MAGIC, frame).ok_or(ModelRefused::Format)?;
    let mut header = || Some((RunId(reader.array()?), reader.u64()?, reader.u64()?, reader.u64()?));
    let (run, version, sequence, dimension) = header().ok_or(ModelRefused::Format)?;
    if dimension.checked_mul(4) != Some(reader.left() as u64) {
        return Err(ModelRefused::Format);
    }
    if run != terms.run() {
        return Err(ModelRefused::Run);
    }
    if dimension != terms.dimension {
        return Err(ModelRefused::Dimension { given: dimension, expected: terms.dimension });
    }
    check(frame).map_err(|_| ModelRefused::Checksum)?;
    let weights = reader.values(dimension).ok_or(ModelRefused::Format)?;
    if !weights.iter().all(|w| w.is_finite()) {
        return Err(ModelRefused::NotFinite);
    }
    Ok(Model { run, version, sequence, weights })
}
