//! The worst-case neighbouring data: canaries with huge gradients.
//!
//! The first g samples are the canaries. All gradients lie on one line u, in units of C after the clip:
//!
//! | neighbours, sampler | canary in D | canary in D' | all others | a hit group moves U by |
//! |---|---|---|---|---|
//! | substitute, fixed size | +u | −u | −u | 2C |
//! | substitute, filter, Poisson or allocation, also in cells | +u | −u | 0 | 2C |
//! | add-remove (Poisson, allocation, also in cells) | +u | 0 (is not there) | 0 | C |
//!
//! In the first row the samples that are not drawn look like D', which is what makes the draw itself hardest
//! to hide (the pair for which C_{ms/N}(G_{1/σ}) is attained). Where the number of groups is random the
//! others must be silent, or they would be noise; so must they be in cells, some of which are empty. (A
//! sample added to a cell may move it by 2C, which is what is claimed; these data show half of that.)
//!
//! A sample that is not there and a sample with gradient zero add the same to U, so D' may keep its place in
//! the data.

use dpsgd_privacy::mechanism::{Mechanism, Neighbours};
use dpsgd_train::{InnerAlgorithm, PlanConfig, Rule};

/// Which of the two data sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// D, with the canaries.
    With,
    /// D', with the opposite of them, or without them.
    Without,
}

/// Coordinates that no gradient touches: pure noise.
pub const FREE: usize = 8;

/// The canaries and the line they lie on.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// g.
    pub canaries: u32,
    /// The coordinates of u, each 1/√`width`.
    pub width: usize,
    /// Where a hit group points in D, relative to a group of others, in units of C.
    pub up: f64,
    /// The same in D', downwards.
    pub down: f64,
    /// A group of others, in units of C.
    pub others: f64,
    /// ‖gradient‖ of a canary, and of another sample.
    lengths: (f32, f32),
}

impl Pair {
    /// The pair for a mechanism and an algorithm with groups of `group_size`.
    pub fn new(mechanism: &Mechanism, config: &PlanConfig, group_size: u64) -> Self {
        let phase = &mechanism.phases()[0];
        let fixed = phase.sampling().sizes().is_some() && !phase.independent_groups();
        // A bounded step shows how often and not how much: then a canary cannot outweigh the others of its
        // group.
        let bounded = config.inner.algorithms().iter().any(|inner| inner.is_bounded(config.result));
        let loud = fixed && (!bounded || group_size == 1) && mechanism.neighbours() == Neighbours::Substitute;
        let (up, down, others) = match (mechanism.neighbours(), loud) {
            (Neighbours::AddRemove, _) => (1.0, 0.0, 0.0),
            (Neighbours::Substitute, true) => (2.0, 0.0, -1.0),
            (Neighbours::Substitute, false) => (1.0, 1.0, 0.0),
        };
        let bound = match config.clipping.rule {
            Rule::FollowUpdate { highest, .. } => highest,
            _ => config.clipping.start,
        };
        // A mean over the group, and the others of the group against it, must leave far more than C; the
        // square of it must be a single-precision number.
        let canary = (1000.0 * bound * group_size as f64).min(1e18);
        Self {
            canaries: mechanism.differing() as u32,
            // A bounded step is about 1 in every coordinate: many of them are longer than C.
            width: if bounded { 512 } else { 1 },
            up,
            down,
            others,
            lengths: (canary as f32, (4.0 * bound) as f32),
        }
    }

    /// d.
    pub fn dimension(&self) -> usize {
        self.width + FREE
    }

    /// Adds the gradient of a sample.
    pub fn add_gradient(&self, side: Side, sample: u32, sum: &mut [f32]) {
        let per_coordinate = 1.0 / (self.width as f32).sqrt();
        let length = if sample >= self.canaries {
            if self.others == 0.0 {
                return;
            }
            -self.lengths.1
        } else {
            match side {
                Side::With => self.lengths.0,
                Side::Without if self.others != 0.0 => -self.lengths.1,
                Side::Without if self.down == 0.0 => return,
                Side::Without => -self.lengths.0,
            }
        };
        for g in &mut sum[..self.width] {
            *g += length * per_coordinate;
        }
    }

    /// What the data are, in a sentence.
    pub fn described(&self) -> String {
        let g = self.canaries;
        let who = if g == 1 { "1 canary has".to_string() } else { format!("{g} canaries have") };
        match (self.others != 0.0, self.down == 0.0) {
            (true, _) => format!(
                "{who} a huge gradient along u in D and the opposite in D', as all other samples have in both"
            ),
            (false, false) => {
                format!("{who} a huge gradient along u in D and the opposite in D'; all others have none")
            }
            (false, true) => {
                format!("{who} a huge gradient along u in D and are absent in D'; all others have none")
            }
        }
    }
}
