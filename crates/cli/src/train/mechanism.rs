//! From the settings to the checked mechanism of a run, σ calibrated.

use dpsgd_privacy::Adversary;
use dpsgd_privacy::calibrate::{self, Target};
use dpsgd_privacy::mechanism::{Length, Neighbours, Noise, PhaseConfig, RunConfig, Sampling};
use dpsgd_train::ledger::first_rounds;

use super::budget::Budget;
use super::defaults;
use super::settings::TrainSettings;
use crate::Failure;
use crate::settings::{self, AdversaryName, NeighboursName, Question, Run, SamplingName, number};

/// N, and whether everybody knows it.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// N.
    pub samples: u64,
    /// Whether it is that of a published data set.
    pub public: bool,
}

/// The false-alarm rates at which attacks are reported.
const ALPHAS: [f64; 3] = [0.01, 0.05, 0.5];

fn refuse<T>(why: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Input(why.into()))
}

/// The mechanism of a run with all that belongs to it.
#[derive(Debug)]
pub struct Settled {
    /// The settings, defaults filled in and σ found.
    pub settings: TrainSettings,
    /// The run for the accountant, cut where `--max-epsilon` ends it.
    pub run: Run,
    /// Whose ε is watched.
    pub budget: Budget,
    /// The rounds that were asked for.
    pub planned: u64,
}

/// Fills in every default of the mechanism, calibrates σ and ends the run where its budget does.
///
/// # Guarantee
/// The returned settings hold every value that the returned run was checked with, so that writing them
/// down and reading them again gives the same run. `releases` are the µ of what the preparation of the
/// data releases; they are composed in. The certified ε of the returned run is at most `max-epsilon`:
/// trainer and ledger know no later round.
pub fn settled(given: &TrainSettings, size: Size, releases: &[f64]) -> Result<Settled, Failure> {
    let mut settings = given.clone();
    let group_size = settings.group_size.unwrap_or(defaults::GROUP_SIZE);
    settings.group_size = Some(group_size);
    let named = settings.sampling.unwrap_or(SamplingName::Subsample);
    settings.sampling = Some(named);
    if named == SamplingName::Poisson {
        (settings.groups, settings.rate) = poisson(given, size)?;
    } else if let Some(rate) = settings.rate {
        return refuse(format!(
            "rate = {rate}: only with --sampling poisson (the other samplers take groups and group-size)"
        ));
    }
    let groups = settings.groups.unwrap_or(defaults::GROUPS);
    settings.groups = Some(groups);
    let samples = size.samples;
    let sampling = match (named, settings.rate) {
        (SamplingName::Poisson, Some(rate)) => Sampling::Poisson { rate },
        (SamplingName::Shuffle, _) => Sampling::Shuffle { samples, groups, group_size },
        _ => Sampling::Subsample { samples, groups, group_size },
    };
    if settings.rounds.is_none() {
        settings.epochs = Some(settings.epochs.unwrap_or(defaults::EPOCHS));
    }
    let neighbours = settings.neighbours.unwrap_or(match named {
        SamplingName::Poisson => NeighboursName::AddRemove,
        _ => NeighboursName::Substitute,
    });
    settings.neighbours = Some(neighbours);
    settings.differing = Some(settings.differing.unwrap_or(1));
    let delta = settings.delta.unwrap_or(defaults::DELTA);
    if !(delta > 0.0 && delta < 1.0) {
        return refuse(format!("delta = {delta}: must be above 0 and below 1"));
    }
    settings.delta = Some(delta);
    let mut config = RunConfig {
        phases: vec![PhaseConfig {
            sampling,
            length: match (settings.rounds, settings.epochs) {
                (Some(rounds), _) => Length::Rounds(rounds),
                (None, epochs) => Length::Epochs(epochs.unwrap_or(defaults::EPOCHS)),
            },
            noise: match (settings.noise_multiplier, settings.sigma) {
                (Some(z), _) => Noise::Multiplier(z),
                (None, sigma) => Noise::Sigma(sigma.unwrap_or(1.0)),
            },
            filtered: settings.filter.unwrap_or(false),
        }],
        neighbours: match neighbours {
            NeighboursName::Substitute => Neighbours::Substitute,
            NeighboursName::AddRemove => Neighbours::AddRemove,
        },
        differing: settings.differing.unwrap_or(1),
        releases: releases.iter().chain(&settings.release_mu).copied().collect(),
    };
    let mut mechanism = config.check()?;
    let adversary = settings::against(settings.adversary, &config);
    settings.adversary = Some(match adversary {
        Adversary::A0 => AdversaryName::A0,
        Adversary::A1 => AdversaryName::A1,
    });
    if settings.sigma.is_none() && settings.noise_multiplier.is_none() {
        let epsilon = settings.target_epsilon.unwrap_or(defaults::TARGET_EPSILON);
        let found = calibrate::sigma(&config, adversary, Target::Epsilon { epsilon, delta })?;
        config.phases[0].noise = Noise::Sigma(found.value);
        settings.sigma = Some(found.value);
        mechanism = found.mechanism;
    }
    settings.target_epsilon = None;
    let budget = Budget { adversary, delta };
    let planned = mechanism.phases()[0].rounds();
    if let Some(most) = settings.max_epsilon {
        if !(most > 0.0 && most.is_finite()) {
            return refuse(format!("max-epsilon = {}: must be a number above 0", number(most)));
        }
        let affordable = budget.affordable(&mechanism, most)?;
        let Some(cut) = first_rounds(&mechanism, affordable)? else {
            return refuse(format!(
                "max-epsilon = {}: not even the first round fits into it; raise it, or --sigma",
                number(most)
            ));
        };
        mechanism = cut;
        config = mechanism.config();
    }
    // Where neighbours differ in their size, N is as private as the rest.
    let shown = (size.public || named != SamplingName::Poisson).then_some(samples);
    let run = Run {
        config,
        mechanism,
        sizes: (shown, Some(groups)),
        question: Question::Epsilon { delta },
        alphas: ALPHAS.to_vec(),
    };
    Ok(Settled { settings, run, budget, planned })
}

/// m and p of Poisson sampling: public constants, never computed from a private N.
fn poisson(given: &TrainSettings, size: Size) -> Result<(Option<u64>, Option<f64>), Failure> {
    if let Some(group_size) = given.group_size.filter(|size| *size > 1) {
        return refuse(format!(
            "group-size = {group_size}: 1 with poisson sampling (removing one sample changes the content of its \
             group, which is a substitution; no theorem here covers that)"
        ));
    }
    let samples = size.samples as f64;
    match (given.groups, given.rate) {
        (Some(groups), Some(rate)) => Ok((Some(groups), Some(rate))),
        _ if !size.public => refuse(
            "rate and groups: give both with poisson sampling of your own data (they are public constants, and \
             its size is private): the rate p, and m, the divisor of the noised sum, about p times the size",
        ),
        (None, Some(rate)) => Ok((Some(((rate * samples).round() as u64).max(1)), Some(rate))),
        (groups, None) => {
            let groups = groups.unwrap_or(defaults::GROUPS);
            Ok((Some(groups), Some(groups as f64 / samples)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MNIST: Size = Size { samples: 60_000, public: true };

    #[test]
    fn the_default_run_is_calibrated() {
        let Settled { settings, run, budget, planned } =
            settled(&TrainSettings::default(), MNIST, &[]).unwrap();
        let sigma = settings.sigma.unwrap();
        assert!((sigma - 1.7925).abs() < 1e-4, "{sigma}");
        assert_eq!((budget.adversary, run.mechanism.phases()[0].rounds()), (Adversary::A0, 29 * 30));
        assert_eq!(planned, 29 * 30);
        // What is written down gives the same run.
        let again = settled(&settings, MNIST, &[]).unwrap();
        assert_eq!((again.settings, again.run.mechanism), (settings, run.mechanism));
    }

    #[test]
    fn a_budget_ends_the_run() {
        let given = TrainSettings { max_epsilon: Some(2.0), ..Default::default() };
        let cut = settled(&given, MNIST, &[]).unwrap();
        let rounds = cut.run.mechanism.phases()[0].rounds();
        assert!(rounds < cut.planned && cut.planned == 870, "{rounds}");
        let spent = |rounds| cut.budget.spent(&cut.run.mechanism, rounds).unwrap();
        assert!(spent(rounds) <= 2.0 && spent(rounds) > 1.99, "{}", spent(rounds));
        let again = settled(&cut.settings, MNIST, &[]).unwrap();
        assert_eq!((again.settings, again.run.mechanism), (cut.settings, cut.run.mechanism));
        let nothing = TrainSettings { max_epsilon: Some(1e-9), ..Default::default() };
        assert!(settled(&nothing, MNIST, &[]).is_err());
    }

    #[test]
    fn a_private_size_is_neither_used_nor_shown() {
        let own = Size { samples: 1234, public: false };
        let poisson = TrainSettings { sampling: Some(SamplingName::Poisson), ..Default::default() };
        assert!(settled(&poisson, own, &[]).is_err());
        let given = TrainSettings { rate: Some(0.01), groups: Some(10), ..poisson };
        let run = settled(&given, own, &[]).unwrap().run;
        assert_eq!(run.sizes, (None, Some(10)));
        let other = Size { samples: 1235, ..own };
        assert_eq!(settled(&given, other, &[]).unwrap().run.mechanism, run.mechanism);
    }
}
