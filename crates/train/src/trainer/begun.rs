//! A round whose groups are summed and whose noise is not drawn yet.

use std::time::{Duration, Instant};

use dpsgd_kernels::squares;
use rayon::prelude::*;

use super::{Private, Round, Setting, Trainer, TrainerState, receive};
use crate::charge::Charge;
use crate::clip::ClippedSum;
use crate::model::Model;
use crate::noise::{BLOCK, RoundNoise};
use crate::outer::{OuterOptimizer, OuterStep};
use crate::schedule::Seen;

/// The first half of a round: see [`Trainer::begin`].
///
/// Dropped without [`Begun::finish`], the round stays spent and nothing of it has left.
pub struct Begun<'a, M: Model, L: Charge> {
    pub(super) trainer: &'a mut Trainer<M, L>,
    pub(super) setting: Setting,
    pub(super) base: u64,
    pub(super) private: Private,
    pub(super) began: Instant,
    pub(super) restarts: u32,
    pub(super) discarded: Duration,
}

impl<'a, M: Model, L: Charge> Begun<'a, M, L> {
    /// The round of the run, from 0.
    pub fn round(&self) -> u64 {
        self.setting.position.round
    }

    /// The version of the model from which all its groups started.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The second half: noise and update. A model that arrived since becomes w first.
    pub fn finish(self) -> Round<'a> {
        let Self { trainer, setting, base, private, began, restarts, discarded } = self;
        let position = &setting.position;
        trainer.release(&setting);
        if trainer.plan.config().diagnostics {
            let all = &mut trainer.diagnostics;
            all.rounds += 1;
            all.samples += private.samples;
            all.counts.add(private.counts);
            all.losses += private.losses.sum;
            all.losses_of += private.losses.groups;
        }
        Round {
            round: position.round,
            epoch: position.epoch,
            ends_epoch: position.epoch_end == position.round + 1,
            base,
            applied_to: trainer.state.version,
            eta: setting.eta,
            bound: setting.bound,
            update: &trainer.update,
            wall: began.elapsed(),
            restarts,
            discarded,
        }
    }
}

impl<M: Model, L: Charge> Trainer<M, L> {
    /// Adds the noise of the round to the sum of its groups, and takes the step.
    fn release(&mut self, setting: &Setting) {
        receive(&self.interrupt, &mut self.state);
        let config = self.plan.config();
        let position = &setting.position;
        let sum = self.groups.total();
        let sigma = self.plan.phase(position).sigma();
        let noise = RoundNoise::of(config.noise, sum, sigma, &self.randomness, position.round);
        self.state.outer.steps += 1;
        let step = OuterStep { eta: setting.eta, steps: self.state.outer.steps };
        let share = (1.0 / setting.divisor) as f32;
        // Of w, which is released: it need not pass the clip. Apart from the optimizer's step, so that
        // neither momentum nor Adam's scaling changes it (Loshchilov and Hutter 2019).
        let kept = (1.0 - setting.eta * config.weight_decay) as f32;
        let noised = |mut block: Block<'_>| {
            noise.add(block.number, block.sum, block.update);
            *block.squares = squares(block.update);
            for u in &mut *block.update {
                *u *= share;
            }
            if kept < 1.0 {
                block.weights.iter_mut().for_each(|w| *w *= kept);
            }
            config.outer.apply_block(step, block.weights, block.update, &mut block.states);
        };
        let blocks = blocks(sum, &mut self.update, &mut self.state, &mut self.squares);
        match self.pool.as_ref() {
            Some(pool) => pool.install(|| blocks.into_par_iter().for_each(noised)),
            None => blocks.into_iter().for_each(noised),
        }
        let TrainerState { average, weights, .. } = &mut self.state;
        average.saw(&config.average, weights, position.round, self.plan.rounds());
        let seen = Seen {
            squared_norm: self.squares.iter().sum(),
            deviation: noise.deviation(),
            dimension: self.update.len(),
            divisor: setting.divisor,
            bound: setting.bound,
        };
        config.clipping.saw_update(&mut self.state.clipping, &seen);
    }
}

/// The same block of coordinates of every vector.
struct Block<'a> {
    number: usize,
    sum: &'a [f64],
    update: &'a mut [f32],
    weights: &'a mut [f32],
    states: Vec<&'a mut [f32]>,
    squares: &'a mut f64,
}

fn blocks<'a>(
    sum: &'a ClippedSum,
    update: &'a mut [f32],
    state: &'a mut TrainerState,
    squares: &'a mut [f64],
) -> Vec<Block<'a>> {
    let mut states: Vec<_> =
        state.outer.vectors.iter_mut().map(|(_, values)| values.chunks_mut(BLOCK)).collect();
    let all = sum
        .values()
        .chunks(BLOCK)
        .zip(update.chunks_mut(BLOCK))
        .zip(state.weights.chunks_mut(BLOCK))
        .zip(squares);
    all.enumerate()
        .map(|(number, (((sum, update), weights), squares))| Block {
            number,
            sum,
            update,
            weights,
            states: states.iter_mut().filter_map(Iterator::next).collect(),
            squares,
        })
        .collect()
}
