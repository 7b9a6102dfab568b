//! The permission to spend a round's privacy.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;

use crate::plan::Plan;

/// A ledger: it owns the plan of a run and writes down what is spent of it.
///
/// # Guarantee
///
/// The trainer reads the plan from here and from nowhere else, and so does whoever states what was spent. So
/// no mechanism can be charged or stated but the one that was trained with.
///
/// It does not compile to train with a ledger of one plan and another plan beside it, because there is no
/// place for a second plan:
///
/// ```compile_fail
/// # use dpsgd_train::*;
/// # fn f<M: Model>(
/// #     ledger: Unrecorded, plan: Plan, model: std::sync::Arc<M>, weights: Vec<f32>, randomness: Randomness,
/// # ) {
/// Trainer::new(ledger, plan, model, weights, randomness);
/// # }
/// ```
pub trait Charge {
    /// Why a charge was refused.
    type Error: Error + Send + Sync + 'static;

    /// The plan whose rounds are charged; always the same.
    fn plan(&self) -> &Arc<Plan>;

    /// The rounds charged in all: the rounds 0 to `spent()`, exclusive, may have left.
    fn spent(&self) -> u64;

    /// Charges a round. It must be durable when this returns `Ok`: the round happens afterwards.
    fn charge(&mut self, round: u64) -> Result<(), Self::Error>;

    /// Whether what is recorded calls the randomness of the run private; nothing if it does not say. The
    /// trainer refuses a run of which it would not be true.
    fn private(&self) -> Option<bool> {
        None
    }
}

impl<L: Charge + ?Sized> Charge for &mut L {
    type Error = L::Error;

    fn plan(&self) -> &Arc<Plan> {
        (**self).plan()
    }

    fn spent(&self) -> u64 {
        (**self).spent()
    }

    fn charge(&mut self, round: u64) -> Result<(), L::Error> {
        (**self).charge(round)
    }

    fn private(&self) -> Option<bool> {
        (**self).private()
    }
}

/// **Not a ledger.** It permits every round and forgets all of them when the process ends.
///
/// For audits, benchmarks, examples and tests, whose data are not private. A run on private data that is
/// charged here has no record of what it spent: after a crash nobody can say which updates have left, and a
/// second run on the same data would not know of the first. Use [`Ledger`](crate::ledger::Ledger) for such a
/// run.
#[derive(Clone, Debug)]
pub struct Unrecorded {
    plan: Arc<Plan>,
    spent: u64,
}

impl Unrecorded {
    /// From the first round.
    pub fn new(plan: impl Into<Arc<Plan>>) -> Self {
        Self::at(plan, 0)
    }

    /// From a later round, as if the rounds before it had been charged.
    pub fn at(plan: impl Into<Arc<Plan>>, spent: u64) -> Self {
        Self { plan: plan.into(), spent }
    }
}

impl Charge for Unrecorded {
    type Error = Infallible;

    fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    fn spent(&self) -> u64 {
        self.spent
    }

    fn charge(&mut self, round: u64) -> Result<(), Infallible> {
        self.spent = self.spent.max(round + 1);
        Ok(())
    }
}
