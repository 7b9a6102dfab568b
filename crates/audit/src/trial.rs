//! One trial: a whole run of the production code on one of the two data sets, with a fresh key.

use dpsgd_privacy::mechanism::Sampling;
use dpsgd_train::{Plan, PlanConfig, Randomness, Trainer, clip};

use crate::AuditError;
use crate::likelihood::{Likelihood, Seen};
use crate::pair::{FREE, Pair, Side};
use crate::probe::{Permit, Probe};
use crate::scale::Scale;
use crate::shortened::Shortened;
use crate::tally::Tally;

/// What every trial of an audit has in common.
#[derive(Debug)]
pub struct Trials {
    /// The mechanism that is run.
    pub short: Shortened,
    /// The data.
    pub pair: Pair,
    /// What the adversaries compute.
    pub likelihood: Likelihood,
    plan: Plan,
    seed: Option<u64>,
}

/// What the adversaries make of a run.
#[derive(Clone, Copy, Debug)]
pub struct Statistics {
    /// Of A₁.
    pub known: f64,
    /// Of A₀, where it attacks.
    pub blind: Option<f64>,
}

/// What a thread keeps from one trial to the next.
#[derive(Debug, Default)]
pub struct Scratch {
    run: Vec<Seen>,
    noise: Vec<[f64; FREE]>,
    asked: Vec<u32>,
    /// When each sample was last used, and the number of that round or epoch.
    last: Vec<u64>,
    now: u64,
    /// The round in which sample 0 was used, for every epoch of shuffling; nothing if it was not.
    places: Vec<Option<u64>>,
}

impl Trials {
    /// The trials of a shortened mechanism with the algorithms of `config`.
    pub fn new(short: Shortened, config: &PlanConfig, seed: Option<u64>) -> Result<Self, AuditError> {
        let config = PlanConfig { mechanism: short.mechanism.clone(), threads: 1, ..config.clone() };
        let pair = Pair::new(&short.mechanism, &config, short.group_size);
        let likelihood = Likelihood::new(&short.mechanism, &pair);
        Ok(Self { plan: config.check()?, pair, likelihood, short, seed })
    }

    /// The key of a trial: from the system, or one that can be repeated.
    fn key(&self, number: u64) -> Result<Randomness, AuditError> {
        Ok(match self.seed {
            Some(seed) => Randomness::from_seed(seed, number),
            None => Randomness::from_system()?,
        })
    }

    /// Runs the trial of a number, on D if it is even.
    pub fn run(
        &self,
        number: u64,
        scratch: &mut Scratch,
        tally: &mut Tally,
    ) -> Result<Statistics, AuditError> {
        let side = if number.is_multiple_of(2) { Side::With } else { Side::Without };
        let pair = &self.pair;
        let probe = Probe::new(pair.dimension(), self.short.samples, |sample, _: &[f32], sum: &mut [f32]| {
            pair.add_gradient(side, sample, sum);
        });
        let weights = vec![0.0; pair.dimension()];
        let mut trainer = Trainer::new(self.plan.clone(), &probe, weights, self.key(number)?)?;
        let phase = &self.plan.mechanism().phases()[0];
        let divisor = self.plan.divisor(phase);
        let root = (pair.width as f64).sqrt();
        scratch.run.clear();
        scratch.noise.clear();
        scratch.places.clear();
        while !trainer.finished() {
            let round = trainer.round(&mut Permit).map_err(|error| AuditError::Round(error.to_string()))?;
            let unit = divisor / round.bound;
            let line: f64 = round.update[..pair.width].iter().map(|&x| f64::from(x)).sum();
            // A coordinate without gradient has noise only, in units of what is promised.
            let deviation = Scale::of(self.plan.config(), phase, pair.dimension(), round.bound).deviation;
            let free = &round.update[pair.width..];
            scratch.noise.push(std::array::from_fn(|j| f64::from(free[j]) * divisor / deviation));
            probe.take_asked(&mut scratch.asked);
            let groups = scratch.asked.chunks(self.short.group_size as usize);
            let count = groups.len() as f64;
            let hit = groups.filter(|group| group.iter().any(|&i| i < pair.canaries)).count() as u32;
            let y = line * unit / root - pair.others * count * (1.0 - clip::MARGIN);
            scratch.run.push(Seen { y, hit });
            self.see_batch(scratch, tally, hit);
        }
        tally.see_noise(&scratch.noise);
        let squares = |run: &[Seen]| run.iter().map(|seen| u64::from(seen.hit).pow(2)).sum::<u64>();
        *tally.exposure.entry(squares(&scratch.run)).or_default() += 1;
        if let Sampling::Shuffle { .. } = phase.sampling() {
            let epochs = scratch.run.chunks_exact(phase.sampling().rounds_per_epoch() as usize);
            scratch.places.truncate(epochs.len());
            for epoch in epochs {
                *tally.epoch_exposure.entry(squares(epoch)).or_default() += 1;
            }
            for pair in scratch.places.chunks_exact(2) {
                tally.same_round.0 += 1;
                tally.same_round.1 += u64::from(pair[0].is_some() && pair[0] == pair[1]);
            }
        }
        for pair in scratch.run.chunks_exact(2) {
            tally.hit_pairs.0 += 1;
            tally.hit_pairs.1 += u64::from(pair.iter().all(|seen| seen.hit > 0));
        }
        Ok(Statistics {
            known: self.likelihood.known(&scratch.run),
            blind: self.likelihood.blind(&scratch.run),
        })
    }

    /// Takes note of which samples a round used.
    fn see_batch(&self, scratch: &mut Scratch, tally: &mut Tally, hit: u32) {
        let phase = &self.plan.mechanism().phases()[0];
        let position = self.plan.position(scratch.run.len() as u64 - 1);
        scratch.last.resize(self.short.samples, 0);
        let fresh = match phase.sampling() {
            Sampling::Shuffle { .. } => position.round_of_epoch == 0,
            _ => true,
        };
        if fresh {
            scratch.now += 1;
            scratch.places.push(None);
            tally.epochs += 1;
        }
        for &sample in &scratch.asked {
            if sample == 0
                && let Some(place) = scratch.places.last_mut()
            {
                *place = Some(position.round_of_epoch);
            }
            tally.used[sample as usize] += 1;
            tally.twice += u64::from(scratch.last[sample as usize] == scratch.now);
            scratch.last[sample as usize] = scratch.now;
        }
        let size = self.short.group_size;
        let asked = scratch.asked.len() as u64;
        tally.groups += asked / size;
        let right = match phase.sampling() {
            Sampling::Poisson { .. } => true,
            Sampling::Subsample { groups, .. } | Sampling::Shuffle { groups, .. } => {
                asked.is_multiple_of(size)
                    && (asked == groups * size || phase.filtered() && asked < groups * size)
            }
        };
        tally.misshapen += u64::from(!right);
        tally.see_hits(hit);
    }
}
