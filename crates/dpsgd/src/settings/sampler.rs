//! The sampler of a phase, from the settings that describe it.

use dpsgd_privacy::mechanism::{Sampling, SamplingKind};

use super::{Population, RawSettings, SettingsError, defaults, number, refuse};

/// The largest divisor of a noised sum.
const MOST_DIVISOR: u64 = 1_000_000_000_000;

pub(super) const BOTH: &str = "rate and groups: give both with poisson sampling of your own data (they are public \
    constants, and its size is private): the rate p, and m, the divisor of the noised sum, about p times the \
    size";

pub(super) const BOTH_ALLOCATED: &str = "rounds-per-epoch and groups: give both with allocate sampling of your own \
    data (they are public constants, and its size is private): the rounds B of an epoch, and m, the divisor of \
    the noised sum, about the size divided by B";

const BOTH_CELLS: &str = "rounds-per-epoch and groups: give both with allocate sampling of your own data \
    (they are public constants, and its size is private): the rounds B of an epoch, and m, the cells of a \
    round";

impl RawSettings {
    /// The sampler of a phase, and the public divisor where the sampler needs one.
    pub(super) fn sampling_of(
        &self,
        population: Population,
    ) -> Result<(Sampling, Option<u64>), SettingsError> {
        let kind = self.sampling.unwrap_or(SamplingKind::Subsample);
        let group_size = self.group_size.unwrap_or(defaults::GROUP_SIZE);
        let samples = self.samples.or(population.samples);
        let public = samples.filter(|_| population.public);
        match kind {
            SamplingKind::Poisson => {
                self.refuse_rounds_per_epoch()?;
                self.poisson(public)
            }
            SamplingKind::Allocate => {
                self.refuse_rate()?;
                self.allocate(public)
            }
            SamplingKind::Subsample | SamplingKind::Shuffle => {
                self.refuse_rate()?;
                self.refuse_rounds_per_epoch()?;
                let Some(samples) = samples else {
                    return refuse("samples: give N, the size of the data set");
                };
                let groups = self.groups.unwrap_or_else(|| self.usual_groups(samples));
                let sampling = if kind == SamplingKind::Shuffle {
                    Sampling::Shuffle { samples, groups, group_size }
                } else {
                    Sampling::Subsample { samples, groups, group_size }
                };
                Ok((sampling, None))
            }
        }
    }

    /// m, where it is not given; `samples` is public.
    fn usual_groups(&self, samples: u64) -> u64 {
        match self.is_table() {
            true => (samples / defaults::TABLE_PARTS / self.group_size.unwrap_or(1).max(1)).max(1),
            false => defaults::GROUPS,
        }
    }

    fn refuse_rate(&self) -> Result<(), SettingsError> {
        match self.rate {
            None => Ok(()),
            Some(rate) => refuse(format!(
                "rate = {}: only with --sampling poisson (allocate takes rounds-per-epoch, the other samplers \
                 take groups and group-size of samples)",
                number(rate)
            )),
        }
    }

    fn refuse_rounds_per_epoch(&self) -> Result<(), SettingsError> {
        match self.rounds_per_epoch {
            None => Ok(()),
            Some(rounds) => refuse(format!(
                "rounds-per-epoch = {rounds}: only with --sampling allocate (the other samplers take groups \
                 or a rate)"
            )),
        }
    }

    /// B and m of random allocation: public constants, never computed from a private N. Groups of several
    /// samples are cells.
    fn allocate(&self, public_samples: Option<u64>) -> Result<(Sampling, Option<u64>), SettingsError> {
        if let Some(group_size) = self.group_size.filter(|size| *size > 1) {
            return Ok((self.allocate_cells(public_samples, group_size)?, None));
        }
        // N/B, rounded; B = 0 is refused later.
        let divisor = |samples: u64, rounds: u64| {
            let whole = samples.checked_div(rounds).unwrap_or(0);
            let rest = samples.checked_rem(rounds).unwrap_or(0);
            (whole + u64::from(rest >= rounds - rest && rest > 0)).max(1)
        };
        let (rounds, groups) = match (self.rounds_per_epoch, self.groups, public_samples) {
            (Some(rounds), Some(groups), _) => (rounds, Some(groups)),
            (Some(rounds), None, Some(samples)) => (rounds, Some(divisor(samples, rounds))),
            (Some(rounds), None, None) => (rounds, None),
            (None, groups, Some(samples)) => {
                let groups = groups.unwrap_or_else(|| self.usual_groups(samples));
                let rounds = samples.checked_div(groups).unwrap_or(0);
                if rounds == 0 {
                    return refuse(format!(
                        "groups = {groups}: at least 1 and at most samples = {samples} (an epoch has \
                         N/groups rounds)"
                    ));
                }
                (rounds, Some(divisor(samples, rounds)))
            }
            (None, _, None) => return refuse(BOTH_ALLOCATED),
        };
        Ok((Sampling::Allocate { rounds }, groups))
    }

    /// B·m cells of about s samples: where two of the sizes are given, a public N gives the third.
    fn allocate_cells(
        &self,
        public_samples: Option<u64>,
        group_size: u64,
    ) -> Result<Sampling, SettingsError> {
        let share =
            |samples: u64, other: u64| samples.checked_div(other.saturating_mul(group_size)).unwrap_or(0);
        let (rounds, groups) = match (self.rounds_per_epoch, self.groups, public_samples) {
            (Some(rounds), Some(groups), _) => (rounds, groups),
            (Some(rounds), None, Some(samples)) => (rounds, share(samples, rounds).max(1)),
            (None, groups, Some(samples)) => {
                let groups = groups.unwrap_or(defaults::GROUPS);
                let rounds = share(samples, groups);
                if rounds == 0 {
                    return refuse(format!(
                        "groups = {groups}: at least 1, and with group-size = {group_size} at most samples = \
                         {samples} in all (an epoch has N/(groups × group-size) rounds)"
                    ));
                }
                (rounds, groups)
            }
            (_, _, None) => return refuse(BOTH_CELLS),
        };
        Ok(Sampling::AllocateCells { rounds, groups, group_size })
    }

    /// p and m of Poisson sampling: public constants, never computed from a private N.
    fn poisson(&self, public_samples: Option<u64>) -> Result<(Sampling, Option<u64>), SettingsError> {
        if let Some(group_size) = self.group_size.filter(|size| *size > 1) {
            return refuse(format!(
                "group-size = {group_size}: 1 with poisson sampling (removing one sample changes the content \
                 of its group, which is a substitution; no theorem here covers that)"
            ));
        }
        let (rate, groups) = match (self.rate, self.groups, public_samples) {
            (Some(rate), Some(groups), _) => (rate, Some(groups)),
            (Some(rate), None, Some(samples)) => {
                (rate, Some(((rate * samples as f64).round() as u64).max(1)))
            }
            (Some(rate), None, None) => (rate, None),
            (None, groups, Some(samples)) => {
                let groups = groups.unwrap_or_else(|| self.usual_groups(samples));
                (groups as f64 / samples as f64, Some(groups))
            }
            (None, _, None) => return refuse(BOTH),
        };
        if let Some(groups) = groups.filter(|groups| !(1..=MOST_DIVISOR).contains(groups)) {
            return refuse(format!(
                "groups = {groups}: between 1 and {MOST_DIVISOR} (the noised sum is divided by it)"
            ));
        }
        Ok((Sampling::Poisson { rate }, groups))
    }
}
