//! One trial: a whole run of the production code on one of the two data sets, with a fresh key.

use std::sync::Arc;

use dpsgd_privacy::mechanism::{BatchSize, Draw};
use dpsgd_train::{Model, Plan, PlanConfig, Randomness, Trainer, Unrecorded, clip};

use crate::AuditError;
use crate::asked::{self, Asked, watched};
use crate::likelihood::{Likelihood, Seen};
use crate::pair::{FREE, Pair, Side};
use crate::probe::Probe;
use crate::promised::PromisedNoise;
use crate::shortened::Shortened;
use crate::subject::{Recorded, Subject};
use crate::tally::Tally;

/// Who hands the trainer global models while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Server {
    /// Nobody.
    #[default]
    Silent,
    /// An adversary. Before every round it chooses ŵ from all updates it has seen, so as to turn the gradients
    /// of that round around or not; while the groups are computed it sends the opposite model, which must change
    /// nothing but where the update is subtracted.
    Adversarial,
}

/// What every trial of an audit has in common.
pub struct Trials<S: Subject> {
    /// The mechanism that is run.
    pub short: Shortened,
    /// The data.
    pub pair: Pair,
    /// What the adversaries compute.
    pub likelihood: Likelihood,
    plan: Arc<Plan>,
    seed: Option<u64>,
    server: Server,
    /// The models on D and on D', where a subject computes the gradients.
    models: Option<[Arc<Recorded<S::Model>>; 2]>,
}

/// What the adversaries make of a run.
#[derive(Clone, Copy, Debug)]
pub struct Statistics {
    /// Of A₁.
    pub known: f64,
    /// Of A₀.
    pub blind: f64,
}

/// What a thread keeps from one trial to the next.
#[derive(Debug, Default)]
pub struct Scratch {
    run: Vec<Seen>,
    noise: Vec<[f64; FREE]>,
    asked: Asked,
    /// When each sample was last used, and the number of that round or epoch.
    last: Vec<u64>,
    now: u64,
    /// The round in which sample 0 was used, for every epoch of shuffling or allocation; nothing if it was
    /// not.
    places: Vec<Option<u64>>,
}

impl<S: Subject> Trials<S> {
    /// The trials of a shortened mechanism with the algorithms of `config`. A subject computes the gradients, if there
    /// is one; the server must be silent then.
    pub fn new(
        short: Shortened,
        config: &PlanConfig,
        seed: Option<u64>,
        server: Server,
        subject: Option<&S>,
    ) -> Result<Self, AuditError> {
        let config = PlanConfig { mechanism: short.mechanism.clone(), threads: 1, ..config.clone() };
        let pair = Pair::new(&short.mechanism, &config, short.group_size);
        let likelihood = Likelihood::new(&short.mechanism, &pair);
        let on = |subject: &S, side| {
            let mut gradients = vec![0.0; short.samples * pair.dimension()];
            for (sample, gradient) in gradients.chunks_exact_mut(pair.dimension()).enumerate() {
                pair.add_gradient(side, sample as u32, gradient);
            }
            subject.model(pair.dimension(), &gradients).map(Recorded::new).map_err(AuditError::Subject)
        };
        let models = match subject {
            Some(subject) => Some([on(subject, Side::With)?, on(subject, Side::Without)?]),
            None => None,
        };
        let plan = Arc::new(watched(&config).check()?);
        Ok(Self { plan, pair, likelihood, short, seed, server, models })
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
        let even = number.is_multiple_of(2);
        if let Some([with, without]) = &self.models {
            return self.run_on(if even { with } else { without }, number, scratch, tally);
        }
        let side = if even { Side::With } else { Side::Without };
        let pair = self.pair;
        // The start, w = 0, and every model of a silent server leave gradients as they are.
        let turns = self.server == Server::Adversarial;
        let gradient = move |sample, w: &[f32], sum: &mut [f32]| {
            let turned = turns && w[0] < 0.0;
            let turn = |sum: &mut [f32]| sum.iter_mut().filter(|_| turned).for_each(|g| *g = -*g);
            turn(sum);
            pair.add_gradient(side, sample, sum);
            turn(sum);
        };
        self.run_on(&Probe::new(pair.dimension(), self.short.samples, gradient), number, scratch, tally)
    }

    /// Runs the trial of a number with a model that records what it is asked.
    fn run_on<M: Model>(
        &self,
        model: &Arc<M>,
        number: u64,
        scratch: &mut Scratch,
        tally: &mut Tally,
    ) -> Result<Statistics, AuditError> {
        let pair = self.pair;
        let turns = self.server == Server::Adversarial;
        let weights = vec![0.0; pair.dimension()];
        let ledger = Unrecorded::new(self.plan.clone());
        // What an earlier use of this thread has left.
        asked::take(&mut scratch.asked);
        let mut trainer = Trainer::new(ledger, model.clone(), weights, self.key(number)?)?;
        let phase = &self.plan.mechanism().phases()[0];
        let divisor = self.plan.divisor(&self.plan.position(0));
        let root = (pair.width as f64).sqrt();
        scratch.run.clear();
        scratch.noise.clear();
        scratch.places.clear();
        let interrupt = trainer.interrupt();
        let all = |sign: f32| vec![sign; pair.dimension()];
        while !trainer.finished() {
            let sign = self.chosen(&scratch.run);
            let next = 2 * trainer.next_round() + 1;
            if turns {
                trainer.replace(next, all(sign))?;
            }
            let begun = trainer.begin()?;
            if turns {
                interrupt.replace(next + 1, all(-sign))?;
            }
            let round = begun.finish();
            let unit = divisor / round.bound;
            let line: f64 = round.update[..pair.width].iter().map(|&x| f64::from(x)).sum();
            // A coordinate without gradient has noise only, in units of what is promised.
            let deviation =
                PromisedNoise::of(self.plan.config(), phase, pair.dimension(), round.bound).deviation;
            let free = &round.update[pair.width..];
            scratch.noise.push(std::array::from_fn(|j| f64::from(free[j]) * divisor / deviation));
            asked::take(&mut scratch.asked);
            let groups = scratch.asked.groups(self.short.fixed_group_size());
            let count = groups.len() as f64;
            let hit = groups.iter().filter(|group| group.iter().any(|&i| i < pair.canaries)).count() as u32;
            let y = f64::from(sign) * line * unit / root - pair.others * count * (1.0 - clip::MARGIN);
            scratch.run.push(Seen { y, hit });
            self.see_batch(scratch, tally, hit);
        }
        tally.see_noise(&scratch.noise);
        let squares = |run: &[Seen]| run.iter().map(|seen| u64::from(seen.hit).pow(2)).sum::<u64>();
        *tally.exposure.entry(squares(&scratch.run)).or_default() += 1;
        if phase.sampling().draw() == Draw::EveryEpoch {
            let epochs = scratch.run.chunks_exact(phase.sampling().rounds_per_epoch() as usize);
            scratch.places.truncate(epochs.len());
            for epoch in epochs {
                *tally.epoch_exposure.entry(squares(epoch)).or_default() += 1;
            }
            scratch.places.iter().flatten().for_each(|place| tally.see_place(*place));
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

    /// The sign of the next model: a function of everything the server has seen.
    fn chosen(&self, seen: &[Seen]) -> f32 {
        let total: f64 = seen.iter().map(|seen| seen.y).sum();
        // Turned around whenever the updates so far speak for sample 0.
        if self.server == Server::Adversarial && total > 0.0 { -1.0 } else { 1.0 }
    }

    /// Takes note of which samples a round used.
    fn see_batch(&self, scratch: &mut Scratch, tally: &mut Tally, hit: u32) {
        let phase = &self.plan.mechanism().phases()[0];
        let position = self.plan.position(scratch.run.len() as u64 - 1);
        scratch.last.resize(self.short.samples, 0);
        let fresh = match phase.sampling().draw() {
            Draw::EveryEpoch => position.round_of_epoch == 0,
            Draw::EveryRound => true,
        };
        if fresh {
            scratch.now += 1;
            scratch.places.push(None);
            tally.epochs += 1;
        }
        for &sample in &scratch.asked.samples {
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
        let asked = scratch.asked.samples.len() as u64;
        tally.groups += asked / size;
        let right = match phase.sampling().batch() {
            BatchSize::Random { .. } | BatchSize::Cells { .. } => {
                if phase.sampling().draw() == Draw::EveryEpoch {
                    tally.see_size(position.round_of_epoch, asked);
                }
                true
            }
            BatchSize::Fixed { groups, .. } => {
                asked.is_multiple_of(size)
                    && (asked == groups * size || phase.filtered() && asked < groups * size)
            }
        };
        tally.misshapen += u64::from(!right);
        tally.see_hits(hit);
    }
}
