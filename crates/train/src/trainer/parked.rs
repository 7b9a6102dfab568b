//! A trainer between rounds, without the room that rounds need.

use std::sync::Arc;

use super::{Diagnostics, Interrupt, Trainer, TrainerState, pool};
use crate::charge::Charge;
use crate::error::TrainerError;
use crate::model::Model;
use crate::noise::BLOCK;
use crate::plan::Plan;
use crate::randomness::Randomness;
use crate::sampler::Sampler;
use crate::trainer::groups::Groups;

/// A run between two rounds, without workers, threads and sums: what a program keeps of each of thousands of
/// simulated clients.
///
/// # Guarantee
///
/// It is the run itself and no copy: it was taken out of a trainer, and a trainer takes it back. So its rounds
/// go on where they were, and no noise is drawn twice.
pub struct Parked<M: Model, L: Charge> {
    ledger: L,
    plan: Arc<Plan>,
    model: Arc<M>,
    randomness: Randomness,
    sampler: Sampler,
    interrupt: Interrupt,
    restarts: u32,
    state: TrainerState,
    diagnostics: Diagnostics,
}

impl<M: Model, L: Charge> Trainer<M, L> {
    /// Gives up the room for rounds until [`Parked::wake`].
    pub fn park(self) -> Parked<M, L> {
        let Trainer { ledger, plan, model, randomness, sampler, interrupt, restarts, state, .. } = self;
        let diagnostics = self.diagnostics;
        Parked { ledger, plan, model, randomness, sampler, interrupt, restarts, state, diagnostics }
    }
}

impl<M: Model, L: Charge> Parked<M, L> {
    /// A trainer that goes on.
    pub fn wake(self) -> Result<Trainer<M, L>, TrainerError> {
        let Parked { ledger, plan, model, randomness, sampler, interrupt, restarts, state, diagnostics } =
            self;
        let dimension = model.dimension();
        Ok(Trainer {
            groups: Groups::new(&plan, &model)?,
            pool: pool(plan.threads())?,
            update: vec![0.0; dimension],
            squares: vec![0.0; dimension.div_ceil(BLOCK)],
            ledger,
            plan,
            model,
            randomness,
            sampler,
            interrupt,
            restarts,
            state,
            diagnostics,
        })
    }

    /// The ledger.
    pub fn ledger(&self) -> &L {
        &self.ledger
    }

    /// What a checkpoint must hold.
    pub fn state(&self) -> &TrainerState {
        &self.state
    }

    /// A handle to replace w.
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Whether every round of the plan is spent.
    pub fn finished(&self) -> bool {
        self.state.round >= self.plan.rounds()
    }
}
