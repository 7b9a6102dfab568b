//! What a run needs to go on, as the content of a checkpoint.

use std::collections::BTreeMap;

use super::TrainerState;
use crate::checkpoint::Checkpoint;
use crate::outer::OuterState;
use crate::schedule::ScheduleState;

/// A checkpoint that lacks something the state of a trainer needs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is missing, it is of another version")]
pub struct Lacks(String);

impl TrainerState {
    /// A checkpoint of this state. The epoch and the place in the ledger are the caller's to fill in, and further
    /// vectors and numbers may be added.
    pub fn checkpoint(&self) -> Checkpoint {
        let vectors = BTreeMap::from([
            ("weights".to_string(), self.weights.clone()),
            ("outer-first".to_string(), self.outer.first.clone()),
            ("outer-second".to_string(), self.outer.second.clone()),
        ]);
        // Exact: no run has 2⁵³ rounds.
        let mut numbers = BTreeMap::from([("outer-steps".to_string(), self.outer.steps as f64)]);
        for (name, schedule) in [("clip", &self.clipping), ("step", &self.step)] {
            numbers.insert(format!("{name}-factor"), schedule.factor);
            let seen = [("accuracy", schedule.accuracy), ("share", schedule.share)];
            for (what, value) in seen.into_iter().filter_map(|(what, value)| Some((what, value?))) {
                numbers.insert(format!("{name}-{what}"), value);
            }
        }
        Checkpoint { round: self.round, vectors, numbers, ..Checkpoint::default() }
    }

    /// The state that [`TrainerState::checkpoint`] wrote down.
    pub fn of(checkpoint: &Checkpoint) -> Result<Self, Lacks> {
        let vector =
            |name: &str| checkpoint.vectors.get(name).cloned().ok_or_else(|| Lacks(name.to_string()));
        let number = |name: &str| checkpoint.numbers.get(name).copied();
        let needed = |name: &str| number(name).ok_or_else(|| Lacks(name.to_string()));
        let schedule = |name: &str| -> Result<ScheduleState, Lacks> {
            Ok(ScheduleState {
                factor: needed(&format!("{name}-factor"))?,
                accuracy: number(&format!("{name}-accuracy")),
                share: number(&format!("{name}-share")),
            })
        };
        Ok(Self {
            round: checkpoint.round,
            weights: vector("weights")?,
            outer: OuterState {
                steps: needed("outer-steps")? as u64,
                first: vector("outer-first")?,
                second: vector("outer-second")?,
            },
            clipping: schedule("clip")?,
            step: schedule("step")?,
        })
    }
}
