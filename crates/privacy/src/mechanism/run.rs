//! A checked run: its rounds, where it may resume, and what a part of it is.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::{
    Draw, EpochDraw, Independent, Length, MechanismError, Neighbours, NoiseScale, Phase, PhaseConfig,
    RunConfig,
};

/// A checked run. See the [module documentation](super).
#[derive(Clone, Debug, PartialEq)]
pub struct Mechanism {
    pub(super) phases: Vec<Phase>,
    pub(super) neighbours: Neighbours,
    pub(super) differing: u64,
    pub(super) releases: Vec<f64>,
}

impl Mechanism {
    /// The phases in order; there is at least one.
    pub fn phases(&self) -> &[Phase] {
        &self.phases
    }

    /// The neighbour relation.
    pub fn neighbours(&self) -> Neighbours {
        self.neighbours
    }

    /// g, the number of differing samples.
    pub fn differing(&self) -> u64 {
        self.differing
    }

    /// µ of every further Gaussian release, for **one** differing sample.
    pub fn releases(&self) -> &[f64] {
        &self.releases
    }

    /// µ of all further Gaussian releases together, for all g differing samples: g times the root of the
    /// sum of the squares.
    ///
    /// # Guarantee
    /// A release that is G_µ for one sample is G_{gµ} for g (Dong, Roth, Su 2022, Thm 2.14), and Gaussians
    /// compose by adding squares.
    pub fn released_mu(&self) -> f64 {
        self.differing as f64 * self.releases.iter().map(|mu| mu * mu).sum::<f64>().sqrt()
    }

    /// The same run asked about `differing` samples, at most as many as before.
    pub(crate) fn with_differing(&self, differing: u64) -> Self {
        Self { differing: differing.clamp(1, self.differing), ..self.clone() }
    }

    /// The same run for the accountant, with equal phases counted as one.
    ///
    /// # Guarantee
    /// The law of everything released is that of the original, up to its order: rounds drawn afresh are
    /// counted wherever they stand, and of phases drawn epoch by epoch only whole epochs are moved. (An
    /// incomplete epoch of a permutation is dependent within itself and stays a phase of its own.)
    pub fn merged(&self) -> Self {
        let mut merged: Vec<Phase> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for phase in &self.phases {
            let epoch = match phase.sampling.independent() {
                Independent::Rounds => 1,
                Independent::Epochs(_) => phase.sampling.rounds_per_epoch().max(1),
            };
            let rest = match phase.sampling.independent() {
                Independent::Epochs(EpochDraw::Permutation(_)) => phase.rounds % epoch,
                Independent::Rounds | Independent::Epochs(EpochDraw::Allocation { .. }) => 0,
            };
            // An incomplete epoch of an allocation counts as a whole one.
            let whole = (phase.rounds - rest).div_ceil(epoch).saturating_mul(epoch);
            if whole > 0 {
                match places.entry(phase.key()) {
                    Entry::Occupied(place) => {
                        let rounds = &mut merged[*place.get()].rounds;
                        *rounds = rounds.saturating_add(whole);
                    }
                    Entry::Vacant(place) => {
                        place.insert(merged.len());
                        merged.push(Phase { rounds: whole, ..*phase });
                    }
                }
            }
            if rest > 0 {
                merged.push(Phase { rounds: rest, ..*phase });
            }
        }
        Self { phases: merged, ..self.clone() }
    }

    /// T, the rounds of all phases.
    pub fn rounds(&self) -> u64 {
        // Fits: `RunConfig::check` refuses phases whose sum does not.
        self.phases.iter().map(Phase::rounds).sum()
    }

    /// Whether N is the same in neighbouring data sets, and so public.
    ///
    /// # Guarantee
    /// Where it is not, nothing that may be published may depend on N: no size, no divisor, no time.
    pub fn size_is_public(&self) -> bool {
        self.phases.iter().all(|phase| phase.sampling().population().is_some())
    }

    /// The same run as a configuration, for changing one value and checking again.
    pub fn config(&self) -> RunConfig {
        RunConfig {
            phases: self.phases.iter().map(|phase| part(phase, phase.rounds)).collect(),
            neighbours: self.neighbours,
            differing: self.differing,
            releases: self.releases.clone(),
        }
    }

    /// The noise of a phase in units of the most that one hit group can move the sum: 2C when a
    /// sample is substituted (so σ), [what it moves](Phase::noise_per_sample) when it is added or removed.
    pub fn noise_per_hit(&self, phase: &Phase) -> f64 {
        match self.neighbours {
            Neighbours::Substitute => phase.sigma(),
            Neighbours::AddRemove => phase.noise_per_sample(),
        }
    }

    /// The first round at or after `next` at which a run may continue in a new process; T at most.
    ///
    /// # Guarantee
    /// Where an epoch shares one draw ([`Draw::EveryEpoch`]), the rest of an epoch that was begun is
    /// skipped: its draw is lost with the process, and a second one within the same epoch could use a
    /// sample twice, which the law of c excludes. Running fewer rounds than were accounted for never
    /// leaks more.
    pub fn resume_at(&self, next: u64) -> u64 {
        let mut start = 0;
        for phase in &self.phases {
            let end = start + phase.rounds;
            if next < end {
                return match phase.sampling.draw() {
                    Draw::EveryRound => next,
                    Draw::EveryEpoch => {
                        // A checked sampler has B ≥ 1.
                        let epoch = phase.sampling.rounds_per_epoch().max(1);
                        let whole = (next - start).div_ceil(epoch).saturating_mul(epoch);
                        start.saturating_add(whole).min(end)
                    }
                };
            }
            start = end;
        }
        start
    }

    /// The first `rounds` rounds as a run of their own, at most the whole run; `None` for zero rounds.
    ///
    /// # Guarantee
    /// With every sampler the first rounds of a run are themselves a run that ends there, and it is
    /// accounted for as such: where an epoch shares one draw, a last, incomplete epoch counts as
    /// incomplete (that of an allocation as a whole one, which is a bound). The further releases are always
    /// included.
    pub fn first_rounds(&self, rounds: u64) -> Result<Option<Mechanism>, MechanismError> {
        if rounds == 0 {
            return Ok(None);
        }
        let mut left = rounds;
        let mut config = RunConfig { phases: Vec::new(), ..self.config() };
        for phase in &self.phases {
            if left == 0 {
                break;
            }
            let rounds = phase.rounds.min(left);
            config.phases.push(part(phase, rounds));
            left -= rounds;
        }
        config.check().map(Some)
    }

    /// What an interrupted run has spent once `charged` rounds were charged: those rounds and, where an
    /// epoch shares one draw, the rest of an epoch that was begun. `None` if no round was charged; then at
    /// most the further releases have been made.
    ///
    /// # Guarantee
    /// Anything released from the first `charged` rounds can be computed from the output of the returned
    /// run, and so reveals no more: a prefix of an epoch's rounds is a function of all of them.
    pub fn spent(&self, charged: u64) -> Result<Option<Mechanism>, MechanismError> {
        self.first_rounds(self.resume_at(charged))
    }
}

/// The first `rounds` rounds of a phase.
fn part(phase: &Phase, rounds: u64) -> PhaseConfig {
    PhaseConfig {
        sampling: phase.sampling,
        length: Length::Rounds(rounds),
        noise: NoiseScale::Sigma(phase.sigma),
        filtered: phase.filtered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::{MOST_ROUNDS, Sampling};

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Sampler {
        Subsample,
        Shuffle,
        Poisson,
        Allocate,
    }
    use Sampler::{Allocate, Poisson, Shuffle, Subsample};

    fn mechanism(phases: &[(Sampler, u64, u64)]) -> Mechanism {
        let phases: Vec<PhaseConfig> = phases
            .iter()
            .map(|&(sampler, epoch, rounds)| {
                let (samples, groups, group_size) = (epoch * 6 + 5, 3, 2);
                PhaseConfig {
                    sampling: match sampler {
                        Shuffle => Sampling::Shuffle { samples, groups, group_size },
                        Subsample => Sampling::Subsample { samples, groups, group_size },
                        Poisson => Sampling::Poisson { rate: 1.0 / epoch as f64 },
                        Allocate => Sampling::Allocate { rounds: epoch },
                    },
                    length: Length::Rounds(rounds),
                    noise: NoiseScale::Sigma(1.5),
                    filtered: false,
                }
            })
            .collect();
        RunConfig { phases, neighbours: Neighbours::Substitute, differing: 1, releases: vec![0.25] }
            .check()
            .unwrap()
    }

    /// Walks over the run round by round and notes where an epoch or an independent round begins.
    fn beginnings(phases: &[(Sampler, u64, u64)]) -> Vec<u64> {
        let mut all = Vec::new();
        let mut round = 0;
        for &(sampler, epoch, rounds) in phases {
            for i in 0..rounds {
                if !matches!(sampler, Shuffle | Allocate) || i % epoch == 0 {
                    all.push(round);
                }
                round += 1;
            }
        }
        all.push(round);
        all
    }

    #[test]
    fn runs_resume_and_are_cut_at_beginnings_only() {
        let layouts: [&[(Sampler, u64, u64)]; 8] = [
            &[(Subsample, 5, 12)],
            &[(Shuffle, 5, 15)],
            &[(Shuffle, 5, 13)],
            &[(Shuffle, 4, 10), (Subsample, 3, 7), (Shuffle, 3, 9)],
            &[(Subsample, 3, 4), (Shuffle, 7, 20), (Shuffle, 1, 3)],
            &[(Poisson, 4, 6), (Shuffle, 3, 8), (Poisson, 2, 5)],
            &[(Allocate, 4, 10), (Allocate, 3, 9)],
            &[(Poisson, 4, 6), (Allocate, 5, 12), (Shuffle, 3, 8)],
        ];
        for phases in layouts {
            let (mechanism, beginnings) = (mechanism(phases), beginnings(phases));
            let total = mechanism.rounds();
            assert_eq!(total, phases.iter().map(|phase| phase.2).sum::<u64>());
            assert_eq!(mechanism.spent(0).unwrap(), None);
            for charged in 0..=total + 3 {
                let first = beginnings.iter().copied().find(|&b| b >= charged.min(total)).unwrap();
                assert_eq!(mechanism.resume_at(charged), first, "{phases:?} at {charged}");
                if charged == 0 {
                    continue;
                }
                let spent = mechanism.spent(charged).unwrap().unwrap();
                assert_eq!(spent.rounds(), first);
                assert_eq!(spent.releases(), mechanism.releases());
                let mut end = 0;
                for (part, whole) in spent.phases().iter().zip(mechanism.phases()) {
                    assert_eq!((part.sampling(), part.sigma()), (whole.sampling(), whole.sigma()));
                    end += part.rounds();
                    assert!(part.rounds() == whole.rounds() || end == first);
                }
            }
            assert_eq!(mechanism.spent(total).unwrap(), Some(mechanism));
        }
    }

    #[test]
    fn the_first_rounds_are_cut_anywhere() {
        let whole = mechanism(&[(Shuffle, 4, 10), (Subsample, 3, 7)]);
        assert_eq!(whole.first_rounds(0).unwrap(), None);
        for rounds in 1..=17 {
            let first = whole.first_rounds(rounds).unwrap().unwrap();
            assert_eq!(first.rounds(), rounds);
            assert_eq!(first.phases().len(), if rounds > 10 { 2 } else { 1 });
            assert_eq!((first.releases(), first.neighbours()), (whole.releases(), whole.neighbours()));
        }
        assert_eq!(whole.first_rounds(18).unwrap(), Some(whole.clone()));
        assert_eq!(whole.first_rounds(u64::MAX).unwrap(), Some(whole));
    }

    #[test]
    fn the_longest_run_resumes_without_overflow() {
        let whole = mechanism(&[(Shuffle, 8, MOST_ROUNDS), (Shuffle, 3, MOST_ROUNDS)]);
        assert_eq!(whole.rounds(), 2 * MOST_ROUNDS);
        for next in [u64::MAX, 2 * MOST_ROUNDS, 2 * MOST_ROUNDS - 1] {
            assert!(whole.resume_at(next) <= 2 * MOST_ROUNDS);
        }
        assert_eq!(whole.resume_at(MOST_ROUNDS - 1), MOST_ROUNDS);
    }
}
