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
//! * allocation: in every epoch every sample draws one of B rounds, uniformly and independently of all
//!   others, and is a group of its own in it; or it draws one of the B·m cells, which are the groups (see
//!   [`allocation`]);
//! * filter: every group is kept with probability ½, independently of everything else.
//!
//! Integers below a bound are drawn with rejection, so they are exactly uniform. A round's batch
//! is a function of the key and the round alone.

pub mod allocation;
pub mod poisson;
mod units;

use dpsgd_privacy::mechanism::{BatchSize, EpochDraw, Independent, RoundDraw};

use self::poisson::Skips;
use self::units::Units;
use crate::clip::UNIT_GROUPS;
use crate::fault::{self, Fault};
use crate::plan::{Plan, Position};
use crate::randomness::{Purpose, Randomness, Stream};

/// The samples of one round, group after group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch<'a> {
    /// The samples; every consecutive `group_size` are one group S_{b,h}, unless there are `cells`.
    pub samples: &'a [u32],
    /// s; in cells, the average.
    pub group_size: usize,
    /// Where each of the m cells ends in `samples`, where the groups are cells; some are empty.
    pub cells: Option<&'a [usize]>,
    /// Where the units end in which groups are summed (see [`clip`](crate::clip)); empty where they are all
    /// of one size, which they are unless groups are
    /// [independent](dpsgd_privacy::mechanism::Phase::independent_groups).
    pub ends: &'a [usize],
}

impl<'a> Batch<'a> {
    /// The groups, each with its samples; an empty cell is one of them.
    pub fn groups(&self) -> impl Iterator<Item = &'a [u32]> + use<'a> {
        let (samples, size, cells) = (self.samples, self.group_size, self.cells);
        let count = cells.map_or(samples.len() / size, <[usize]>::len);
        (0..count).map(move |group| match cells {
            Some(ends) => cell(samples, ends, group),
            None => &samples[group * size..(group + 1) * size],
        })
    }
}

/// The samples of a cell.
pub(crate) fn cell<'a>(samples: &'a [u32], ends: &[usize], cell: usize) -> &'a [u32] {
    let begin = cell.checked_sub(1).map_or(0, |before| ends[before]);
    &samples[begin..ends[cell]]
}

/// Draws the batches of a run. Its memory is that of one index of the data (and of B numbers for
/// allocation), its time per round that of the batch. Shuffling and allocation draw once an epoch, which
/// takes time of the order of N.
#[derive(Debug)]
pub struct Sampler {
    samples: u32,
    /// Identity between rounds of subsampling, the permutation of `epoch` while shuffling, its samples by
    /// round while allocating.
    indices: Vec<u32>,
    /// The epoch whose draw `indices` holds.
    epoch: Option<u64>,
    /// Where the samples of each round, or cell, of an allocated epoch end in `indices`.
    allocated: Vec<u32>,
    /// Where the cells of a round end in `batch`.
    cells: Vec<usize>,
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
            allocated: Vec::new(),
            cells: Vec::new(),
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
        let group_size = phase.sampling().group_size() as usize;
        match phase.sampling().independent() {
            Independent::Epochs(EpochDraw::Permutation(sizes)) => {
                self.permute(position.epoch, randomness);
                let size = sizes.batch() as usize;
                let start = position.round_of_epoch as usize * size;
                self.batch.extend_from_slice(&self.indices[start..start + size]);
            }
            Independent::Epochs(EpochDraw::Allocation { rounds, cells }) => {
                self.allocate(position.epoch, (rounds * cells.unwrap_or(1)) as u32, randomness);
                let each = cells.unwrap_or(1) as usize;
                let first = position.round_of_epoch as usize * each;
                self.cells.clear();
                for place in first..first + each {
                    self.batch.extend_from_slice(allocation::of_round(&self.indices, &self.allocated, place));
                    self.cells.push(self.batch.len());
                }
            }
            Independent::Rounds => {
                let mut stream = randomness.stream(Purpose::Sampling, position.round);
                match phase.sampling().round() {
                    RoundDraw::Subset(sizes) => self.subsample(sizes.batch() as usize, &mut stream),
                    RoundDraw::EachSample { rate } => self.keep_each(rate, &mut stream),
                    // Cells are drawn for a whole epoch, above.
                    RoundDraw::Cells { .. } => {}
                }
            }
        }
        let in_cells = matches!(phase.sampling().batch(), BatchSize::Cells { .. });
        if phase.filtered() && !fault::injected(Fault::FilterIgnored) {
            let mut stream = randomness.stream(Purpose::Filter, position.round);
            match in_cells {
                true => filter_cells(&mut self.batch, &mut self.cells, &mut stream),
                false => filter(&mut self.batch, group_size, &mut stream),
            }
        }
        self.ends.clear();
        if phase.independent_groups() {
            let most = (UNIT_GROUPS as usize / group_size).max(1);
            let mut stream = randomness.stream(Purpose::Units, position.round);
            self.units.draw(&mut self.batch, group_size, most, &mut stream, &mut self.ends);
        }
        let cells = in_cells.then_some(&self.cells[..]);
        Batch { samples: &self.batch, group_size, cells, ends: &self.ends }
    }

    /// Every sample with probability `rate`.
    fn keep_each(&mut self, rate: f64, stream: &mut Stream) {
        let skips = match self.skips.take() {
            Some((of, skips)) if of == rate => skips,
            _ => Skips::new(rate),
        };
        skips.draw(self.samples, stream, &mut self.batch);
        self.skips = Some((rate, skips));
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

    /// The rounds, or cells, of an epoch's samples; a checked plan has fewer than 2³² of them.
    fn allocate(&mut self, epoch: u64, rounds: u32, randomness: &Randomness) {
        if self.epoch == Some(epoch) {
            return;
        }
        let drawn = if fault::injected(Fault::AllocationKept) { 0 } else { epoch };
        let stream = || randomness.stream(Purpose::Allocation, drawn);
        let (order, ends) = (&mut self.indices, &mut self.allocated);
        if fault::injected(Fault::AllocationBalanced) {
            allocation::balance(self.samples, rounds, &mut stream(), order, ends);
        } else {
            allocation::draw(self.samples, rounds, stream, order, ends);
        }
        self.epoch = Some(epoch);
    }

    fn identity(&mut self) {
        self.indices.clear();
        self.indices.extend(0..self.samples);
        self.epoch = None;
    }
}

/// Empties every cell with probability ½, so that the kept ones stay where they are: one bit a cell, whatever
/// it holds.
fn filter_cells(batch: &mut Vec<u32>, ends: &mut [usize], stream: &mut Stream) {
    let (mut begin, mut kept, mut bits) = (0, 0, 0);
    for (cell, end) in ends.iter_mut().enumerate() {
        if cell % 64 == 0 {
            bits = stream.bits64();
        }
        let range = begin..*end;
        begin = *end;
        if bits & 1 == 1 {
            let size = range.len();
            batch.copy_within(range, kept);
            kept += size;
        }
        *end = kept;
        bits >>= 1;
    }
    batch.truncate(kept);
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
