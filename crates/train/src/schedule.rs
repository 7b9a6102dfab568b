//! The step size η and the clipping norm C from round to round.
//!
//! # Guarantee
//!
//! A schedule reads the round's number, the accuracy on a *public* test set, or the norm of an
//! *already noised* update, and nothing else. So η and C of a round are functions of what an
//! observer of the earlier updates knows, and the guarantee holds for any rule: the noise of the
//! round is scaled to the C of that round (the paper's remark that C may be adapted at the start
//! of each round), and everything learned from noised updates is post-processing.

use serde::{Deserialize, Serialize};

use crate::error::{PlanError, within};

/// A value and the rule that changes it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// The value in the first round.
    pub start: f64,
    /// How it changes.
    pub rule: Rule,
}

/// How η or C changes from round to round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Rule {
    /// Not at all.
    Constant,
    /// start/√t in round t = 1, 2, …
    InverseRoot,
    /// Multiplied by `factor` after every `epochs` epochs.
    Step {
        /// Above 0 and at most 1.
        factor: f64,
        /// At least 1.
        epochs: u64,
    },
    /// Multiplied by `factor` (the paper: 0.9) when the accuracy on the public test set fell
    /// between the last two epochs; see [`crate::Trainer::saw_accuracy`].
    WhenWorse {
        /// Above 0 and at most 1.
        factor: f64,
    },
    /// A warm-up, then a fall to the end of the run, by the round's number t = 0, 1, … and the planned number
    /// of rounds T alone.
    ///
    /// With W = ⌈warmup·T⌉: start·(t + 1)/W before round W; from there on, with p = (t − W)/(T − W) in
    /// [0, 1), start·(end + (1 − end)·s(p)), where s falls from 1 to 0 as `shape` says. So the first round
    /// after the warm-up has the start value itself, and no round has the value 0.
    Annealed {
        /// The share of all rounds that rise, at least 0 and below 1.
        warmup: f64,
        /// How it falls after them.
        shape: Shape,
        /// The share of the start value that it falls to, from 0 to 1; [`Shape::Constant`] does not fall.
        end: f64,
    },
    /// For C only: follows the share of C that the noised updates show to be in use.
    ///
    /// ‖Ū‖² exceeds ‖U‖² by about d·(2Cσ)², so r = √max(0, ‖Ū‖² − d(2Cσ)²)/(mC) estimates the
    /// length of the mean clipped result in units of C. r is averaged over about ten rounds and
    /// C ← C·exp(rate·(r̄ − share)), kept between `lowest` and `highest`. Post-processing.
    FollowUpdate {
        /// The share aimed at, above 0 and below 1.
        share: f64,
        /// How fast, above 0 and at most 1.
        rate: f64,
        /// C never falls below.
        lowest: f64,
        /// C never rises above.
        highest: f64,
    },
}

/// How a value falls from 1 to 0 over p in [0, 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Shape {
    /// Not at all.
    Constant,
    /// 1 − p.
    Linear,
    /// (1 + cos πp)/2 (Loshchilov and Hutter 2017, without restarts).
    Cosine,
}

impl Shape {
    fn at(self, p: f64) -> f64 {
        match self {
            Shape::Constant => 1.0,
            Shape::Linear => 1.0 - p,
            Shape::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * p).cos()),
        }
    }
}

/// The weight of the newest round in the average of [`Rule::FollowUpdate`].
const NEWEST: f64 = 0.1;

/// What a schedule remembers; saved in checkpoints. All of it is public or already noised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScheduleState {
    /// What the start value is multiplied by.
    pub factor: f64,
    /// The public test accuracy after the last epoch.
    pub accuracy: Option<f64>,
    /// r̄ of [`Rule::FollowUpdate`].
    pub share: Option<f64>,
}

impl Default for ScheduleState {
    fn default() -> Self {
        Self { factor: 1.0, accuracy: None, share: None }
    }
}

/// A noised update as an observer sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// ‖Ū‖².
    pub squared_norm: f64,
    /// 2Cσ.
    pub deviation: f64,
    /// d.
    pub dimension: usize,
    /// m, or the public divisor.
    pub divisor: f64,
    /// C.
    pub bound: f64,
}

impl Schedule {
    /// The same value in every round.
    pub fn constant(value: f64) -> Self {
        Self { start: value, rule: Rule::Constant }
    }

    /// The value in a round (counted from 0) of an epoch (counted from 0), in a run of `rounds` planned
    /// rounds.
    pub fn value(&self, state: &ScheduleState, round: u64, epoch: u64, rounds: u64) -> f64 {
        match self.rule {
            Rule::Constant => self.start,
            Rule::InverseRoot => self.start / (round as f64 + 1.0).sqrt(),
            Rule::Step { factor, epochs } => self.start * factor.powf((epoch / epochs) as f64),
            Rule::Annealed { warmup, shape, end } => {
                let rising = (warmup * rounds as f64).ceil() as u64;
                if round < rising {
                    return self.start * (round + 1) as f64 / rising as f64;
                }
                let p = (round - rising) as f64 / rounds.saturating_sub(rising).max(1) as f64;
                self.start * (end + (1.0 - end) * shape.at(p.min(1.0)))
            }
            Rule::WhenWorse { .. } => self.start * state.factor,
            Rule::FollowUpdate { lowest, highest, .. } => (self.start * state.factor).clamp(lowest, highest),
        }
    }

    /// Takes note of the public test accuracy after an epoch.
    pub fn saw_accuracy(&self, state: &mut ScheduleState, accuracy: f64) {
        if let (Rule::WhenWorse { factor }, Some(before)) = (self.rule, state.accuracy)
            && accuracy < before
        {
            state.factor *= factor;
        }
        state.accuracy = Some(accuracy);
    }

    /// Takes note of a noised update.
    pub fn saw_update(&self, state: &mut ScheduleState, seen: &Seen) {
        let Rule::FollowUpdate { share, rate, lowest, highest } = self.rule else { return };
        let noise = seen.dimension as f64 * seen.deviation * seen.deviation;
        let used = (seen.squared_norm - noise).max(0.0).sqrt() / (seen.divisor * seen.bound);
        if !used.is_finite() {
            return;
        }
        // A share above 1 is noise: the mean of clipped results is never longer than C.
        let used = used.min(1.0);
        let average = state.share.map_or(used, |before| before + NEWEST * (used - before));
        state.share = Some(average);
        let value = (seen.bound * (rate * (average - share)).exp()).clamp(lowest, highest);
        state.factor = value / self.start;
    }

    pub(crate) fn check(
        &self,
        name: &'static str,
        lowest: f64,
        highest: f64,
        follows: bool,
    ) -> Result<(), PlanError> {
        within(name, self.start, lowest, highest, "beyond, single precision loses it")?;
        match self.rule {
            Rule::Constant | Rule::InverseRoot => Ok(()),
            Rule::Step { factor, epochs } => {
                if epochs == 0 {
                    return Err(PlanError::new(
                        name,
                        "a step every 0 epochs",
                        "at least 1",
                        "epochs are counted from 1",
                    ));
                }
                within(name, factor, 1e-6, 1.0, "the factor of the step rule")
            }
            Rule::Annealed { warmup, end, .. } => {
                within(name, warmup, 0.0, 0.99, "the share of the rounds that warm up")?;
                within(name, end, 0.0, 1.0, "the share of the start value that it falls to")
            }
            Rule::WhenWorse { factor } => within(name, factor, 1e-6, 1.0, "the factor of the rule ×0.9"),
            Rule::FollowUpdate { share, rate, lowest: bottom, highest: top } => {
                if !follows {
                    return Err(PlanError::new(
                        name,
                        "follow-update",
                        "constant, inverse-root, step, when-worse, linear or cosine",
                        "the share of C in use says something about C only",
                    ));
                }
                within(name, share, 1e-3, 0.999, "the share of C to aim at")?;
                within(name, rate, 1e-6, 1.0, "the rate of the adaptation")?;
                within(name, bottom, lowest, highest, "C never falls below")?;
                within(name, top, bottom, highest, "C never rises above")?;
                within(name, self.start, bottom, top, "C starts between the two")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(rule: Rule, at: &[(u64, u64)]) -> Vec<f64> {
        let schedule = Schedule { start: 2.0, rule };
        at.iter()
            .map(|&(round, epoch)| schedule.value(&ScheduleState::default(), round, epoch, 100))
            .collect()
    }

    #[test]
    fn by_round_and_epoch() {
        assert_eq!(values(Rule::Constant, &[(0, 0), (99, 9)]), [2.0, 2.0]);
        assert_eq!(values(Rule::InverseRoot, &[(0, 0), (3, 0), (99, 9)]), [2.0, 1.0, 0.2]);
        let step = Rule::Step { factor: 0.5, epochs: 3 };
        assert_eq!(values(step, &[(0, 0), (9, 2), (10, 3), (11, 5), (12, 6)]), [2.0, 2.0, 1.0, 1.0, 0.5]);
    }

    /// Against the formulas of the documentation, written out for every round.
    #[test]
    fn warms_up_and_falls() {
        let at = |rule: Rule, rounds: u64| -> Vec<f64> {
            let schedule = Schedule { start: 2.0, rule };
            (0..rounds).map(|t| schedule.value(&ScheduleState::default(), t, 0, rounds)).collect()
        };
        let annealed = |warmup, shape, end| Rule::Annealed { warmup, shape, end };
        assert_eq!(at(annealed(0.5, Shape::Constant, 0.0), 8), [0.5, 1.0, 1.5, 2.0, 2.0, 2.0, 2.0, 2.0]);
        assert_eq!(at(annealed(0.0, Shape::Linear, 0.0), 4), [2.0, 1.5, 1.0, 0.5]);
        assert_eq!(at(annealed(0.2, Shape::Linear, 0.5), 5), [2.0, 2.0, 1.75, 1.5, 1.25]);
        let cosine = at(annealed(0.0, Shape::Cosine, 0.0), 4);
        let expected = [2.0, 1.0 + 0.5f64.sqrt(), 1.0, 1.0 - 0.5f64.sqrt()];
        for (value, expected) in cosine.iter().zip(expected) {
            assert!((value - expected).abs() < 1e-15, "{cosine:?}");
        }
        // Nothing is 0, and a run of one round has its start value.
        for shape in [Shape::Constant, Shape::Linear, Shape::Cosine] {
            for rounds in [1, 2, 3, 10, 1000] {
                for warmup in [0.0, 0.1, 0.99] {
                    let values = at(annealed(warmup, shape, 0.0), rounds);
                    assert!(values.iter().all(|value| *value > 0.0 && *value <= 2.0), "{values:?}");
                }
            }
            assert_eq!(at(annealed(0.0, shape, 0.0), 1), [2.0]);
        }
        for wrong in [annealed(1.0, Shape::Cosine, 0.0), annealed(0.0, Shape::Cosine, 1.5)] {
            assert!(Schedule { start: 1.0, rule: wrong }.check("step", 1e-12, 1e6, false).is_err());
        }
    }

    #[test]
    fn falls_when_the_accuracy_fell() {
        let schedule = Schedule { start: 1.0, rule: Rule::WhenWorse { factor: 0.9 } };
        let mut state = ScheduleState::default();
        let mut after = |accuracy| {
            schedule.saw_accuracy(&mut state, accuracy);
            schedule.value(&state, 0, 0, 100)
        };
        assert_eq!(after(0.5), 1.0);
        assert_eq!(after(0.6), 1.0);
        assert_eq!(after(0.55), 0.9);
        assert_eq!(after(0.55), 0.9);
        assert_eq!(after(0.54), 0.81);
        assert_eq!(after(0.9), 0.81);
    }

    #[test]
    fn follows_the_noised_update() {
        let rule = Rule::FollowUpdate { share: 0.5, rate: 0.1, lowest: 0.5, highest: 2.0 };
        let schedule = Schedule { start: 1.0, rule };
        let mut state = ScheduleState::default();
        // A noised update whose estimated mean result is as long as C itself: C rises to its top.
        for _ in 0..100 {
            let bound = schedule.value(&state, 0, 0, 100);
            let deviation = 2.0 * bound;
            let squared_norm = 10.0 * deviation * deviation + (8.0 * bound).powi(2);
            schedule.saw_update(
                &mut state,
                &Seen { squared_norm, deviation, dimension: 10, divisor: 8.0, bound },
            );
        }
        assert_eq!(schedule.value(&state, 0, 0, 100), 2.0);
        // Less than the noise alone: C falls to its bottom.
        for _ in 0..100 {
            let bound = schedule.value(&state, 0, 0, 100);
            let seen = Seen { squared_norm: 0.0, deviation: 1.0, dimension: 10, divisor: 8.0, bound };
            schedule.saw_update(&mut state, &seen);
        }
        assert_eq!(schedule.value(&state, 0, 0, 100), 0.5);
    }
}
