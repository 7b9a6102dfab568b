//! The state of a coordinator, as it is saved.

use std::collections::BTreeMap;

use dpsgd::train::OuterState;

use super::{Reader, Writer, check};
use crate::name::{ClientId, RunId};
use crate::reject::Reject;
use crate::state::{Standing, State};
use crate::terms::{Agreed, Combine, Rule};
use crate::window::Window;

const MAGIC: [u8; 4] = *b"DPFS";

/// Why a saved state cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateRefused {
    /// Not a saved state, or damaged.
    #[error("the saved state is damaged or not in format 1; restore it from a copy")]
    Damaged,
    /// Of another run.
    #[error(
        "the saved state belongs to another run: the terms have changed; go on with the old terms, or begin a new run"
    )]
    Run,
}

/// The frame of a state.
pub fn encode(state: &State, terms: &Agreed) -> Vec<u8> {
    let vectors = 1 + state.outer.vectors.len() + state.buffer.len();
    let capacity = 4 * vectors * state.weights.len() + 64 * state.clients.len() + 1024;
    let mut frame = Writer::new(MAGIC, capacity);
    frame.bytes(&terms.run().0).u64(state.sequence).u64(state.version);
    frame.u64(state.weights.len() as u64).values(&state.weights);
    frame.u64(state.outer.steps).u64(state.outer.vectors.len() as u64);
    for (_, values) in &state.outer.vectors {
        frame.values(values);
    }
    frame.u64(state.buffered).u64(state.etas.to_bits()).u64(state.buffer.len() as u64);
    for values in &state.buffer {
        frame.values(values);
    }
    frame.u64(state.strangers).u64(state.staleness.len() as u64);
    for (staleness, count) in &state.staleness {
        frame.u64(*staleness).u64(*count);
    }
    frame.u64(state.clients.len() as u64);
    for (client, standing) in &state.clients {
        frame.u64(client.0).u64(standing.window.next).u64(standing.window.bits).u64(standing.accepted);
        frame.u64(standing.rejected.len() as u64);
        for (reason, count) in &standing.rejected {
            frame.u64(*reason as u64).u64(*count);
        }
    }
    frame.sealed()
}

/// Reads a frame that [`encode`] wrote.
///
/// # Guarantee
///
/// Never panics, and allocates no more than the frame is long.
pub fn decode(frame: &[u8], terms: &Agreed) -> Result<State, StateRefused> {
    let mut reader = Reader::open(MAGIC, frame).ok_or(StateRefused::Damaged)?;
    let run: [u8; 16] = reader.array().ok_or(StateRefused::Damaged)?;
    check(frame).map_err(|_| StateRefused::Damaged)?;
    if RunId(run) != terms.run() {
        return Err(StateRefused::Run);
    }
    body(&mut reader, terms).filter(|_| reader.left() == 0).ok_or(StateRefused::Damaged)
}

fn body(reader: &mut Reader<'_>, terms: &Agreed) -> Option<State> {
    let d = terms.dimension;
    let (sequence, version) = (reader.u64()?, reader.u64()?);
    let weights = if reader.u64()? == d { reader.values(d)? } else { return None };
    let steps = reader.u64()?;
    let names = terms.outer().fresh(0).vectors;
    if reader.u64()? != names.len() as u64 {
        return None;
    }
    let vectors = names.into_iter().map(|(name, _)| Some((name, reader.values(d)?)));
    let outer = OuterState { steps, vectors: vectors.collect::<Option<_>>()? };
    let (buffered, etas) = (reader.u64()?, f64::from_bits(reader.u64()?));
    let kept = reader.u64()?;
    if kept != vectors_kept(terms.rule, buffered)? {
        return None;
    }
    let buffer = (0..kept).map(|_| reader.values(d)).collect::<Option<_>>()?;
    let strangers = reader.u64()?;
    let mut staleness = BTreeMap::new();
    for _ in 0..reader.u64()? {
        staleness.insert(reader.u64()?, reader.u64()?);
    }
    let mut clients = BTreeMap::new();
    for _ in 0..reader.u64()? {
        let client = ClientId(reader.u64()?);
        clients.insert(client, standing(reader)?);
    }
    let finite = etas.is_finite() && weights.iter().all(|w| w.is_finite());
    finite.then_some(State {
        sequence,
        version,
        weights,
        outer,
        buffered,
        etas,
        buffer,
        clients,
        strangers,
        staleness,
    })
}

/// How many vectors a buffer holds; nothing if it cannot hold that many updates.
fn vectors_kept(rule: Rule, buffered: u64) -> Option<u64> {
    match rule {
        Rule::EachUpdate => (buffered == 0).then_some(0),
        Rule::Buffer { size, .. } if buffered >= size => None,
        Rule::Buffer { combine: Combine::Mean, .. } => Some(buffered.min(1)),
        Rule::Buffer { .. } => Some(buffered),
    }
}

fn standing(reader: &mut Reader<'_>) -> Option<Standing> {
    let window = Window { next: reader.u64()?, bits: reader.u64()? };
    let accepted = reader.u64()?;
    let mut rejected = BTreeMap::new();
    for _ in 0..reader.u64()? {
        let reason = Reject::numbered(u8::try_from(reader.u64()?).ok()?)?;
        rejected.insert(reason, reader.u64()?);
    }
    Some(Standing { window, accepted, rejected })
}
