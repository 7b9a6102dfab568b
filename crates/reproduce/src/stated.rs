//! What the run of an experiment would guarantee, had its randomness been secret.

use dpsgd::Error;
use dpsgd_privacy::mechanism::SamplingKind;
use dpsgd_privacy::{Adversary, adversary};
use dpsgd_report::rounding::up;

use crate::experiment::{AddedNoise, Experiment};
use crate::laboratory::mechanism;

/// δ of every ε here.
pub const DELTA: f64 = 1e-5;

/// Certified upper ends of ε at δ = 1e-5.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stated {
    /// Against A₁.
    pub a1: f64,
    /// Against A₀; none for shuffling, where nothing better than A₁'s is proved.
    pub a0: Option<f64>,
}

impl Stated {
    /// Of the first epochs of an experiment; none if its noise is not that of a mechanism.
    ///
    /// # Guarantee
    /// That of [`adversary::curve`] for the mechanism that was trained with, as if its randomness had been
    /// secret.
    pub fn of(experiment: &Experiment, epochs: u64) -> Result<Option<Self>, Error> {
        if experiment.noise != AddedNoise::Printed || epochs == 0 {
            return Ok(None);
        }
        let mechanism = mechanism(experiment, epochs)?;
        let epsilon =
            |who| -> Result<f64, Error> { Ok(adversary::curve(&mechanism, who)?.epsilon(DELTA)?.upper) };
        let shuffled = mechanism.phases()[0].sampling().kind() == SamplingKind::Shuffle;
        let a0 = if shuffled { None } else { Some(epsilon(Adversary::A0)?) };
        Ok(Some(Self { a1: epsilon(Adversary::A1)?, a0 }))
    }

    /// ε against A₁ and A₀ for people.
    pub fn cells(this: Option<&Self>) -> [String; 2] {
        match this {
            None => ["∞".to_string(), "∞".to_string()],
            Some(Self { a1, a0 }) => {
                [up(*a1, 4), a0.map_or_else(|| format!("≤ {}", up(*a1, 4)), |a0| up(a0, 4))]
            }
        }
    }
}
