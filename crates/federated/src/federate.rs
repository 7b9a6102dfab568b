//! `dpsgd federate`: a data set divided among simulated clients, each with a guarantee of its own.

mod answer;
mod page;
mod split;

use std::collections::HashMap;
use std::sync::Arc;

use dpsgd::data::Labelled;
use dpsgd::engine::{Label, Samples};
use dpsgd::evaluation::{Evaluate, TestSet};
use dpsgd::privacy::mechanism::BatchSize;
use dpsgd::settings::{OuterName, Population, Preparation, defaults};
use dpsgd::train::{Native, Plan, Purpose, Randomness, Rule as ScheduleRule};
use dpsgd::{Error, Observer, Prepared, RawSettings, Settings, prepare};

pub use self::answer::Answer;
pub use self::split::{NotASplit, Split};

use crate::admission::outside_of_terms;
use crate::simulate::{Conditions, Moment, Site, World};
use crate::terms::{Agreed, Bounds, Rule, ServerOuter, Staleness, Terms};
use crate::timeline::Measured;

/// Rounds of an epoch of an average client, where m is not given.
const ROUNDS_PER_EPOCH: u64 = 20;
/// How often the global model is measured.
const MEASUREMENTS: u64 = 20;
/// A random batch may be this many times as large as expected before the server rejects its update.
const LARGEST_BATCH: f64 = 2.0;

/// A federation in one process, as it was asked for.
#[derive(Clone, Debug)]
pub struct Federate {
    /// What each client trains; `outer` is the server's.
    pub raw: RawSettings,
    /// How many clients.
    pub clients: u64,
    /// Who has which samples.
    pub split: Split,
    /// How updates become steps.
    pub rule: Rule,
    /// What staleness does to an update's weight.
    pub weight: Staleness,
    /// The largest staleness; unless it is given, twenty updates of every client.
    pub max_staleness: Option<u64>,
    /// Speeds, delays, faults.
    pub conditions: Conditions,
}

/// A federation that can run.
pub struct Federation {
    terms: Arc<Agreed>,
    sites: Vec<Site<Native>>,
    /// The settings of each client, shared by those with as many samples.
    settings: Vec<Arc<Settings>>,
    weights: Vec<f32>,
    test: TestSet,
    conditions: Conditions,
    split: Split,
    data: String,
    seed: u64,
}

/// What a client trains, decided.
type Planned = (Arc<Settings>, Arc<Plan>);

fn refuse<T>(why: impl Into<String>) -> Result<T, Error> {
    Err(Error::Refused(why.into()))
}

/// The samples of one client.
struct Part {
    whole: Labelled,
    indices: Vec<u32>,
}

impl Samples for Part {
    fn count(&self) -> usize {
        self.indices.len()
    }

    fn copy_input(&self, index: u32, out: &mut [f32]) {
        self.whole.copy_input(self.indices[index as usize], out);
    }

    fn label(&self, index: u32) -> Label<'_> {
        self.whole.label(self.indices[index as usize])
    }
}

impl Federate {
    /// Reads the data, divides them, and resolves the settings of every client by the path that any other run
    /// takes.
    ///
    /// # Guarantee
    /// Each client's plan has the mechanism that its statement is about: that of the settings for the number
    /// of its own samples. σ is calibrated, and a budget applied, for each client by itself.
    pub fn prepare(mut self, observer: &mut dyn Observer) -> Result<Federation, Error> {
        if !(1..=crate::terms::MOST_CLIENTS).contains(&self.clients) {
            return refuse(format!("clients = {}: at least 1, at most 16,777,216", self.clients));
        }
        self.conditions.check().or_else(refuse)?;
        self.raw = self.raw.among_clients();
        let seed = *self.raw.seed.get_or_insert(1);
        // The usual η of a long centralised run falls by epochs, which clients of different sizes do not share.
        self.raw.step.get_or_insert(defaults::STEP);
        let whole = Prepared::new(&self.shape(), observer)?;
        let outer = ServerOuter::try_from(&whole.settings.algorithm.outer)?;
        let mut inputs = whole.inputs;
        let randomness = Randomness::from_seed(seed, 0);
        if let Preparation::Private { .. } = whole.settings.data.preparation {
            return refuse(
                "normalise = private: each client would need a release of its own; take public or none",
            );
        }
        inputs.normalise(&whole.settings, &randomness)?;
        let weights = prepare::initial(&whole.network, &randomness);
        let (train, test) = (Arc::new(inputs.split.train), Arc::new(inputs.split.test));
        if train.len() as u64 / self.clients == 0 {
            return refuse(format!("clients = {}: the data have only {} samples", self.clients, train.len()));
        }
        let mean = train.len() as u64 / self.clients;
        let size = self.raw.group_size.unwrap_or(defaults::GROUP_SIZE);
        if self.raw.rate.is_none() && self.raw.rounds_per_epoch.is_none() {
            self.raw.groups.get_or_insert((mean / (ROUNDS_PER_EPOCH * size)).max(1));
        }
        let least = self.raw.groups.unwrap_or(1).saturating_mul(size);
        let parts = self.split.divide(&train, self.clients, least, seed)?;
        let plans = self.plans(&parts, inputs.population.public)?;
        let terms = self.terms(&plans, whole.network.dimension(), outer, &parts)?;
        let labelled = |indices| Part { whole: Labelled(train.clone()), indices };
        let site = |(i, (indices, (settings, plan))): (usize, (Vec<u32>, &Planned))| {
            let model = Native::new(whole.network.clone(), Arc::new(labelled(indices)));
            Site {
                model: Arc::new(settings.algorithm.inside(model)),
                plan: plan.clone(),
                seed: seed.wrapping_add(i as u64),
            }
        };
        Ok(Federation {
            terms: Agreed::shared(terms).map_err(|error| Error::Refused(error.to_string()))?,
            sites: parts.into_iter().zip(&plans).enumerate().map(site).collect(),
            settings: plans.iter().map(|(settings, _)| settings.clone()).collect(),
            weights,
            test: TestSet { network: whole.network, test, group_size: size, threads: whole.settings.threads },
            conditions: self.conditions,
            split: self.split,
            data: inputs.name,
            seed,
        })
    }

    /// The same settings with a mechanism that costs nothing to account for: only data, network and algorithm are
    /// taken from them.
    fn shape(&self) -> RawSettings {
        let raw = self.raw.clone();
        if !raw.phase.is_empty() {
            return raw;
        }
        RawSettings {
            sigma: Some(1.0),
            noise_multiplier: None,
            target_epsilon: None,
            max_epsilon: None,
            rounds: Some(1),
            epochs: None,
            groups: raw.groups.or(Some(1)),
            ..raw
        }
    }

    /// Settings and plan of every client; those of equal size share them.
    fn plans(&self, parts: &[Vec<u32>], public: bool) -> Result<Vec<Planned>, Error> {
        // What the server does with updates is not the clients' business.
        let raw = RawSettings {
            outer: Some(OuterName::Plain),
            momentum: None,
            threads: Some(1),
            ..self.raw.clone()
        };
        let mut known: HashMap<usize, Planned> = HashMap::new();
        let mut plans = Vec::new();
        for (i, part) in parts.iter().enumerate() {
            if let Some(plan) = known.get(&part.len()) {
                plans.push(plan.clone());
                continue;
            }
            let named = |error: String| {
                Error::Refused(format!("client {} with {} samples: {error}", i + 1, part.len()))
            };
            let population = Population::measured(part.len() as u64, public);
            let settings = raw.resolve_for(population).map_err(|error| named(error.to_string()))?;
            if let Some(why) = outside_of_terms(&settings) {
                return refuse(why);
            }
            let plan = settings.plan()?;
            plans.push((Arc::new(settings), plan));
            known.insert(part.len(), plans[i].clone());
        }
        Ok(plans)
    }

    fn terms(
        &self,
        plans: &[Planned],
        dimension: usize,
        outer: ServerOuter,
        parts: &[Vec<u32>],
    ) -> Result<Terms, Error> {
        let mut bounds = Bounds::of(0.0, 0.0);
        (bounds.smallest_deviation, bounds.largest_deviation) = (f64::INFINITY, 0.0);
        for ((_, plan), part) in plans.iter().zip(parts) {
            let config = plan.config();
            if config.clipping.rule != ScheduleRule::Constant {
                return refuse("clip-rule: only constant in a federation, whose server checks norms by C");
            }
            let clip = config.clipping.start;
            for (phase, divisor) in plan.mechanism().phases().iter().zip(&config.divisors) {
                let (divisor, signal) = match phase.sampling().batch() {
                    BatchSize::Fixed { groups, .. } | BatchSize::Cells { groups, .. } => {
                        (groups as f64, clip)
                    }
                    BatchSize::Random { .. } => {
                        let divisor = divisor.unwrap_or(1.0);
                        let rounds = phase.sampling().rounds_per_epoch().max(1) as f64;
                        let expected = part.len() as f64 / rounds;
                        (divisor, clip * LARGEST_BATCH * (expected / divisor).max(1.0))
                    }
                };
                let deviation = 2.0 * clip * phase.sigma() / divisor;
                bounds.signal = bounds.signal.max(signal);
                bounds.smallest_deviation = bounds.smallest_deviation.min(deviation);
                bounds.largest_deviation = bounds.largest_deviation.max(deviation);
            }
        }
        Ok(Terms {
            name: format!("simulated with seed {}", self.raw.seed.unwrap_or(1)),
            dimension: dimension as u64,
            clients: self.clients,
            rounds: plans.iter().map(|(_, plan)| plan.rounds()).max().unwrap_or(1),
            max_staleness: self
                .max_staleness
                .unwrap_or((20 * self.clients).min(crate::terms::MOST_STALENESS)),
            step: plans[0].1.config().step,
            bounds,
            rule: self.rule,
            weight: self.weight,
            outer,
        })
    }
}

impl Federation {
    /// Updates that all clients will send, if nothing is lost.
    pub fn planned(&self) -> u64 {
        self.sites.iter().map(|site| site.plan.rounds()).sum()
    }

    /// The terms.
    pub fn terms(&self) -> &Arc<Agreed> {
        &self.terms
    }

    /// Runs it; tells `progress` of the updates folded so far.
    pub fn run(mut self, progress: &mut dyn FnMut(u64)) -> Result<Answer, Error> {
        let planned = self.planned();
        let every = (planned / MEASUREMENTS).max(1);
        let clip = self.settings[0].algorithm.clip.start;
        let mut measured: Vec<Measured> = Vec::new();
        let test = &mut self.test;
        let mut measure = |seconds: f64, state: &crate::State| {
            let found = test.evaluate(&state.weights, clip);
            Measured {
                seconds,
                version: state.version,
                updates: state.accepted(),
                rejected: state.rejected().values().sum(),
                staleness: state.mean_staleness(),
                loss: Some(found.loss),
                accuracy: found.accuracy,
            }
        };
        let world = World {
            terms: self.terms.clone(),
            sites: std::mem::take(&mut self.sites),
            weights: self.weights.clone(),
            conditions: self.conditions,
            seed: self.seed,
            record: false,
        };
        let mut folded: u64 = 0;
        let finished = world.run(&mut |moment: &Moment<'_>| {
            folded += 1;
            progress(folded);
            if folded.is_multiple_of(every) {
                measured.push(measure(moment.seconds, moment.state));
            }
        });
        let finished = finished.map_err(|error| Error::Refused(error.to_string()))?;
        let last = measure(finished.seconds, &finished.state);
        if measured.last().is_none_or(|before| before.version != last.version) {
            measured.push(last);
        }
        Answer::new(self, finished, measured)
    }
}

/// The key of whatever is drawn before training.
pub(crate) fn splitting(seed: u64) -> dpsgd::train::Stream {
    Randomness::from_seed(seed, 0).stream(Purpose::Splitting, 0)
}
