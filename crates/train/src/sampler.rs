//! `Sample_{s,m}`: which samples a round uses, and in which groups.
//!
//! # Guarantee
//!
//! Given uniform bits, the batches have exactly the law the accountant of the same
//! [`Mechanism`](dpsgd_privacy::mechanism::Mechanism) assumes:
//! * subsample: S_b is a uniform subset of ms samples, independent from round to round, and its
//!   split into groups is uniform too (the batch is a uniform ordered draw without replacement);
//! * shuffle: every epoch has a fresh uniform permutation, cut into consecutive S_b; the
//!   left-over samples of an epoch are not used in it;
//! * Poisson: every sample is kept independently with probability p (to 2⁻⁶⁴, see [`poisson`]),
//!   as a group of its own;
//! * filter: every group is kept with probability ½, independently of everything else.
//!
//! Integers below a bound are drawn with rejection, so they are exactly uniform. A round's batch
//! is a function of the key and the round alone.

pub mod poisson;
mod units;

use dpsgd_privacy::mechanism::{Phase, Sampling};

use self::poisson::Skips;
use self::units::Units;
use crate::clip::UNIT_GROUPS;
use crate::fault::{self, Fault};
use crate::plan::{Plan, Position};
use crate::randomness::{Purpose, Randomness, Stream};

/// Whether every group of a round is there or not by itself (Poisson sampling, filtering), so that one more or less is what two
/// data sets are told apart by; elsewhere a group's content is substituted.
pub fn one_by_one(phase: &Phase) -> bool {
    phase.filtered() || matches!(phase.sampling(), Sampling::Poisson { .. })
}

/// The samples of one round, group after group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch<'a> {
    /// The samples; every consecutive `group_size` are one group S_{b,h}.
    pub samples: &'a [u32],
    /// s.
    pub group_size: usize,
    /// Where the units end in which groups are summed (see [`clip`](crate::clip)): given where the groups are drawn
    /// [`one_by_one`]; empty where the units are all of one size.
    pub ends: &'a [usize],
}

/// Draws the batches of a run. Its memory is that of one index of the data, its time per round
/// that of the batch (for shuffling: of an epoch's permutation once an epoch).
#[derive(Debug)]
pub struct Sampler {
    samples: u32,
    /// Identity between rounds of subsampling, the permutation of `epoch` while shuffling.
    indices: Vec<u32>,
    /// The epoch whose permutation `indices` holds.
    epoch: Option<u64>,
    /// Where the swaps of a partial shuffle went, to undo them.
    swaps: Vec<u32>,
    /// Skips of the Poisson phase with this rate.
    skips: Option<(f64, Skips)>,
    batch: Vec<u32>,
    units: Units,
    ends: Vec<usize>,
}

impl Sampler {
    /// A sampler of data with N samples.
    pub fn new(samples: u32) -> Self {
        Self {
            samples,
            indices: Vec::new(),
            epoch: None,
            swaps: Vec::new(),
            skips: None,
            batch: Vec::new(),
            units: Units::default(),
            ends: Vec::new(),
        }
    }

    /// The batch of a round; the same whenever it is asked for.
    pub fn batch(&mut self, plan: &Plan, position: &Position, randomness: &Randomness) -> Batch<'_> {
        let phase = plan.phase(position);
        self.batch.clear();
        let group_size = match phase.sampling() {
            Sampling::Subsample { groups, group_size, .. } => {
                let mut stream = randomness.stream(Purpose::Sampling, position.round);
                self.subsample((groups * group_size) as usize, &mut stream);
                group_size as usize
            }
            Sampling::Shuffle { groups, group_size, .. } => {
                self.permute(position.epoch, randomness);
                let size = (groups * group_size) as usize;
                let start = position.round_of_epoch as usize * size;
                self.batch.extend_from_slice(&self.indices[start..start + size]);
                group_size as usize
            }
            Sampling::Poisson { rate } => {
                if self.skips.as_ref().is_none_or(|(of, _)| *of != rate) {
                    self.skips = Some((rate, Skips::new(rate)));
                }
                if let Some((_, skips)) = &self.skips {
                    let mut stream = randomness.stream(Purpose::Sampling, position.round);
                    skips.draw(self.samples, &mut stream, &mut self.batch);
                }
                1
            }
        };
        if phase.filtered() && !fault::injected(Fault::FilterIgnored) {
            filter(&mut self.batch, group_size, &mut randomness.stream(Purpose::Filter, position.round));
        }
        self.ends.clear();
        if one_by_one(phase) {
            let most = (UNIT_GROUPS as usize / group_size).max(1);
            let mut stream = randomness.stream(Purpose::Units, position.round);
            self.units.draw(&mut self.batch, group_size, most, &mut stream, &mut self.ends);
        }
        Batch { samples: &self.batch, group_size, ends: &self.ends }
    }

    /// The first `size` steps of Fisher and Yates, undone afterwards so that the next round starts
    /// from the identity: time and memory for the undoing are of the order of the batch.
    fn subsample(&mut self, size: usize, stream: &mut Stream) {
        if self.epoch.is_some() || self.indices.is_empty() {
            self.identity();
        }
        self.swaps.clear();
        let left = if fault::injected(Fault::RemainderFixed) { self.samples % size as u32 } else { 0 };
        for first in 0..size as u32 {
            let other = first + stream.below(self.samples - left - first);
            self.swaps.push(other);
            self.indices.swap(first as usize, other as usize);
        }
        self.batch.extend_from_slice(&self.indices[..size]);
        for (first, &other) in self.swaps.iter().enumerate().rev() {
            self.indices.swap(first, other as usize);
        }
    }

    /// The permutation of an epoch, by Fisher and Yates from the identity.
    fn permute(&mut self, epoch: u64, randomness: &Randomness) {
        if self.epoch == Some(epoch) {
            return;
        }
        self.identity();
        let drawn = if fault::injected(Fault::PermutationKept) { 0 } else { epoch };
        let mut stream = randomness.stream(Purpose::Permutation, drawn);
        for first in 0..self.samples {
            let other = first + stream.below(self.samples - first);
            self.indices.swap(first as usize, other as usize);
        }
        self.epoch = Some(epoch);
    }

    fn identity(&mut self) {
        self.indices.clear();
        self.indices.extend(0..self.samples);
        self.epoch = None;
    }
}

/// Keeps every group with probability ½: one bit a group.
fn filter(batch: &mut Vec<u32>, group_size: usize, stream: &mut Stream) {
    let mut kept = 0;
    let mut bits = 0;
    for group in 0..batch.len() / group_size {
        if group % 64 == 0 {
            bits = stream.bits64();
        }
        if bits & 1 == 1 {
            let start = group * group_size;
            batch.copy_within(start..start + group_size, kept);
            kept += group_size;
        }
        bits >>= 1;
    }
    batch.truncate(kept);
}
