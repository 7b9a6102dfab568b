//! What a run needs to continue, as the content of a checkpoint.

use std::collections::BTreeMap;

use super::TrainerState;
use crate::average::AverageState;
use crate::checkpoint::Checkpoint;
use crate::outer::OuterState;
use crate::schedule::ScheduleState;

/// The names of the outer optimizer's vectors begin with this.
const OUTER: &str = "outer-";
/// These are in every checkpoint, empty where the optimizer has no such vector.
const ALWAYS: [&str; 2] = ["first", "second"];
const VERSION: &str = "model-version";
const AVERAGE: &str = "average";

/// A checkpoint without something that the state of a trainer needs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is missing, it is of another version")]
pub struct MissingField(String);

impl TrainerState {
    /// A checkpoint of this state. The epoch and the place in the ledger are the caller's to fill in, and
    /// further vectors and numbers may be added.
    pub fn checkpoint(&self) -> Checkpoint {
        let mut vectors = BTreeMap::from([("weights".to_string(), self.weights.clone())]);
        for name in ALWAYS {
            vectors.insert(format!("{OUTER}{name}"), Vec::new());
        }
        for (name, values) in &self.outer.vectors {
            vectors.insert(format!("{OUTER}{name}"), values.clone());
        }
        // Exact: no run has 2⁵³ rounds.
        let mut numbers = BTreeMap::from([(format!("{OUTER}steps"), self.outer.steps as f64)]);
        if let Some(values) = self.average.values() {
            vectors.insert(AVERAGE.to_string(), values.to_vec());
            numbers.insert(AVERAGE.to_string(), self.average.count as f64);
        }
        // In two halves, each exact; runs that receive no models have no such number.
        if self.version > 0 {
            numbers.insert(format!("{VERSION}-high"), (self.version >> 32) as f64);
            numbers.insert(format!("{VERSION}-low"), (self.version & u64::from(u32::MAX)) as f64);
        }
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
    pub fn of(checkpoint: &Checkpoint) -> Result<Self, MissingField> {
        let missing = |name: &str| MissingField(name.to_string());
        let vector = |name: &str| checkpoint.vectors.get(name).ok_or_else(|| missing(name));
        let number = |name: &str| checkpoint.numbers.get(name).copied();
        let needed = |name: &str| number(name).ok_or_else(|| missing(name));
        let schedule = |name: &str| -> Result<ScheduleState, MissingField> {
            Ok(ScheduleState {
                factor: needed(&format!("{name}-factor"))?,
                accuracy: number(&format!("{name}-accuracy")),
                share: number(&format!("{name}-share")),
            })
        };
        for name in ALWAYS {
            vector(&format!("{OUTER}{name}"))?;
        }
        let outer = checkpoint.vectors.iter().filter_map(|(name, values)| {
            let name = name.strip_prefix(OUTER)?;
            (!values.is_empty()).then(|| (name.to_string(), values.clone()))
        });
        let half = |name: &str| number(&format!("{VERSION}-{name}")).unwrap_or(0.0) as u64;
        Ok(Self {
            round: checkpoint.round,
            weights: vector("weights")?.clone(),
            outer: OuterState { steps: needed(&format!("{OUTER}steps"))? as u64, vectors: outer.collect() },
            average: AverageState {
                count: number(AVERAGE).unwrap_or(0.0) as u64,
                values: checkpoint.vectors.get(AVERAGE).cloned().unwrap_or_default(),
            },
            clipping: schedule("clip")?,
            step: schedule("step")?,
            version: (half("high") << 32) | (half("low") & u64::from(u32::MAX)),
        })
    }
}
