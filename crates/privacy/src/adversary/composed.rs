//! Several runs on data of the same person: the product of their privacy losses.

use super::best::stronger;
use super::blind::{Worse, blind_loss};
use super::{Adversary, curve, known_by_moments};
use crate::curve::{Curve, CurvePoint};
use crate::error::PrivacyError;
use crate::interval::Interval;
use crate::loss::Loss;
use crate::mechanism::{Mechanism, Neighbours, Phase};

/// The trade-off function of several runs together, each with its own mechanism, its own randomness and its
/// own number of differing samples.
///
/// This is about a person who has records in the data of several runs: g₁ in the first, g₂ in the second and
/// so on. A run that the person has no record in is left out. A single run is [`curve`].
///
/// # Guarantee
/// The outputs of all runs together, on data with and without that person's records everywhere (or with other
/// ones in their place, by the mechanisms' relation), are at least as hard to tell apart as the curve says,
/// also where a later round of one run depends on what the others released before: the pair that bounds a round
/// does so for any w, and such pairs compose adaptively (Zhu, Dong, Wang 2022, Thm 10). Phases without a pair for
/// a round (shuffled or allocated batches) are counted as A₁ sees them. Relations that differ from run to run
/// are refused.
pub fn composed(runs: &[Mechanism], adversary: Adversary) -> Result<Box<dyn Curve>, PrivacyError> {
    let refuse = |what: &str, why: &str| {
        Err(PrivacyError::Unsupported { what: what.to_string(), why: why.to_string() })
    };
    let Some(first) = runs.first() else {
        return refuse("a composition of no runs", "nothing is released, so there is nothing to account for");
    };
    if runs.len() == 1 {
        return curve(first, adversary);
    }
    if runs.iter().any(|run| run.neighbours() != first.neighbours()) {
        return refuse(
            "a composition of runs with different neighbours",
            "one person's records are either replaced everywhere or added and removed everywhere; give all \
             runs the same relation",
        );
    }
    let product = |of: &dyn Fn(&Mechanism) -> Result<Loss, PrivacyError>| {
        Ok::<_, PrivacyError>(Loss::product(runs.iter().map(of).collect::<Result<_, _>>()?))
    };
    if adversary == Adversary::A1 {
        return Ok(Box::new(product(&known_by_moments)?));
    }
    let forward = product(&|run| blind_loss(run, false))?;
    if first.neighbours() == Neighbours::AddRemove {
        return Ok(Box::new(Worse(forward, Some(product(&|run| blind_loss(run, true))?))));
    }
    if runs.iter().any(|run| run.phases().iter().any(Phase::filtered)) {
        return Ok(Box::new(Filtered { blind: forward, told: product(&known_by_moments)? }));
    }
    Ok(Box::new(forward))
}

/// The filter is ignored against A₀ but not against A₁, and both guarantees hold: the stronger answers.
struct Filtered {
    blind: Loss,
    told: Loss,
}

impl Curve for Filtered {
    fn delta(&self, epsilon: f64) -> Result<Interval, PrivacyError> {
        Ok(self.blind.delta(epsilon)?.min(self.told.delta(epsilon)?))
    }

    fn point(&self, epsilon: f64) -> Result<CurvePoint, PrivacyError> {
        stronger(self.blind.point(epsilon), self.told.point(epsilon))
    }

    fn epsilon(&self, delta: f64) -> Result<Interval, PrivacyError> {
        Ok(self.blind.epsilon(delta)?.min(self.told.epsilon(delta)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::{Length, NoiseScale, PhaseConfig, RunConfig, Sampling};

    fn phase(sampling: Sampling, rounds: u64, sigma: f64) -> PhaseConfig {
        PhaseConfig {
            sampling,
            length: Length::Rounds(rounds),
            noise: NoiseScale::Sigma(sigma),
            filtered: false,
        }
    }

    fn run(phases: Vec<PhaseConfig>, differing: u64) -> Mechanism {
        RunConfig { differing, phases, ..RunConfig::single(phase(SUBSAMPLE, 1, 1.0)) }.check().unwrap()
    }

    const SUBSAMPLE: Sampling = Sampling::Subsample { samples: 1000, groups: 50, group_size: 1 };
    const SHUFFLE: Sampling = Sampling::Shuffle { samples: 1000, groups: 50, group_size: 1 };

    /// Two runs with the same number of differing samples are two phases of one.
    #[test]
    fn two_runs_are_two_phases() {
        for (sampling, adversary) in
            [(SUBSAMPLE, Adversary::A0), (SUBSAMPLE, Adversary::A1), (SHUFFLE, Adversary::A1)]
        {
            let (a, b) = (phase(sampling, 200, 1.0), phase(sampling, 100, 1.5));
            let apart = composed(&[run(vec![a], 1), run(vec![b], 1)], adversary).unwrap();
            let whole = curve(&run(vec![a, b], 1), adversary).unwrap();
            let (apart, whole) = (apart.epsilon(1e-5).unwrap(), whole.epsilon(1e-5).unwrap());
            assert!((apart.upper - whole.upper).abs() < 1e-4 * whole.upper, "{apart:?} {whole:?}");
        }
    }

    /// With all samples in every round a run is a Gaussian mechanism: µ² = T·(g/σ)², and the µ² add up.
    #[test]
    fn gaussian_runs_add_their_squares() {
        let all = Sampling::Poisson { rate: 1.0 };
        let gaussian = |rounds: u64, multiplier: f64, differing: u64| {
            let noise = NoiseScale::Multiplier(multiplier);
            RunConfig { differing, ..RunConfig::single(PhaseConfig { noise, ..phase(all, rounds, 1.0) }) }
                .check()
                .unwrap()
        };
        let (a, b, c) = (gaussian(20, 10.0, 2), gaussian(30, 15.0, 1), gaussian(12, 12.0, 3));
        assert_eq!(a.neighbours(), Neighbours::AddRemove);
        let mu2 = |t: f64, z: f64, g: f64| t * (g / z).powi(2);
        let mu = (mu2(20.0, 10.0, 2.0) + mu2(30.0, 15.0, 1.0) + mu2(12.0, 12.0, 3.0)).sqrt();
        let expected = crate::gaussian::epsilon(mu, 1e-5);
        let found = composed(&[a, b, c], Adversary::A0).unwrap().epsilon(1e-5).unwrap();
        assert!((found.upper - expected).abs() < 1e-3, "{found:?} {expected}");
    }

    #[test]
    fn what_does_not_compose_is_refused() {
        assert!(composed(&[], Adversary::A1).is_err());
        let poisson = RunConfig::single(phase(Sampling::Poisson { rate: 0.1 }, 10, 1.0)).check().unwrap();
        let subsample = run(vec![phase(SUBSAMPLE, 10, 1.0)], 1);
        assert_ne!(poisson.neighbours(), subsample.neighbours());
        assert!(composed(&[poisson, subsample], Adversary::A1).is_err());
    }
}
