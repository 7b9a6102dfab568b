//! The terms of a federation from a typical client: what administrators give, and what follows from it.

use dpsgd::inputs::RunData;
use dpsgd::settings::OuterName;
use dpsgd::train::{Purpose, Randomness};
use dpsgd::{Error, Prepared, RawSettings, prepare};

use super::Setup;
use crate::terms::{Bounds, MOST_CLIENTS, Rule, ServerOuter, Staleness, Terms};

/// A batch of random size may be this many times as large as expected before the server rejects its update.
const LARGEST_BATCH: f64 = 4.0;

/// A federation as it is asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// How many clients.
    pub clients: u64,
    /// The names and addresses of the broker; members dial the first.
    pub hosts: Vec<String>,
    /// Its port.
    pub port: u16,
    /// How updates become steps.
    pub rule: Rule,
    /// What staleness does to an update's weight.
    pub weight: Staleness,
    /// The largest staleness.
    pub max_staleness: u64,
    /// Clients may have up to this many times more or less noise than the typical one.
    pub noise_range: f64,
    /// A name, for people.
    pub name: String,
    /// What a typical client trains; `outer` is the server's, plain unless it is given.
    pub typical: RawSettings,
}

impl Wanted {
    /// Resolves the settings of a typical client, which has its share of the named data, and makes terms that
    /// its updates meet.
    pub fn setup(mut self) -> Result<Setup, Error> {
        let refuse = |why: String| Err(Error::Refused(why));
        if !(self.noise_range >= 1.0 && self.noise_range <= 1e6) {
            return refuse(format!("noise-range = {}: 1 to 1e6", self.noise_range));
        }
        if !(1..=MOST_CLIENTS).contains(&self.clients) {
            return refuse(format!("clients = {}: at least 1, at most {MOST_CLIENTS}", self.clients));
        }
        // A rule that follows one client's measurements would give every client another η.
        self.typical.step_rule.get_or_insert_with(|| "constant".into());
        self.typical.outer.get_or_insert(OuterName::Plain);
        let prepared = self.prepared()?;
        let randomness = Randomness::from_system()?;
        let terms = self.terms(&prepared, &randomness)?;
        let decided = prepared.settings.to_raw();
        Ok(Setup {
            terms,
            initial: prepare::initial(&prepared.network, &randomness),
            hosts: self.hosts,
            port: self.port,
            train: of_client(&decided, prepared.plan.rounds()),
            test: Some(of_test(&decided)),
        })
    }

    fn prepared(&self) -> Result<Prepared, Error> {
        let given = self.typical.clone().among_clients();
        let mut inputs = RunData::load(&given)?;
        let share = inputs.split.train.len() / usize::try_from(self.clients).unwrap_or(usize::MAX).max(1);
        inputs.keep(0..share.max(1))?;
        Prepared::with(inputs, &given, &mut ())
    }

    fn terms(&self, prepared: &Prepared, randomness: &Randomness) -> Result<Terms, Error> {
        let (settings, plan) = (&prepared.settings, &prepared.plan);
        let clip = settings.algorithm.clip.start;
        let mut bounds = Bounds::of(clip, 0.0);
        (bounds.smallest_deviation, bounds.largest_deviation) = (f64::INFINITY, 0.0);
        let mut first = 0;
        for phase in settings.mechanism.phases() {
            let deviation = 2.0 * clip * phase.sigma() / plan.divisor(&plan.position(first));
            bounds.smallest_deviation = bounds.smallest_deviation.min(deviation / self.noise_range);
            bounds.largest_deviation = bounds.largest_deviation.max(deviation * self.noise_range);
            if phase.independent_groups() {
                // Its sum may be longer than m·C.
                bounds.signal = clip * LARGEST_BATCH;
            }
            first += phase.rounds();
        }
        let mut stream = randomness.stream(Purpose::Initialisation, 1);
        let tag: String = (0..8).map(|_| format!("{:02x}", (256.0 * stream.unit()) as u8)).collect();
        Ok(Terms {
            name: format!("{} {tag}", self.name),
            dimension: prepared.network.dimension() as u64,
            clients: self.clients,
            rounds: plan.rounds(),
            max_staleness: self.max_staleness,
            step: settings.algorithm.step,
            bounds,
            rule: self.rule,
            weight: self.weight,
            outer: ServerOuter::try_from(&settings.algorithm.outer)?,
        })
    }
}

/// What of the typical client's settings every client takes, unless it says otherwise.
fn of_client(decided: &RawSettings, rounds: u64) -> RawSettings {
    RawSettings {
        data: None,
        data_dir: None,
        test: None,
        schema: None,
        samples: None,
        seed: None,
        threads: None,
        epochs: None,
        rounds: Some(rounds),
        // The optimizer that was asked for is the server's.
        outer: Some(OuterName::Plain),
        momentum: None,
        ..decided.clone()
    }
}

/// What the coordinator needs to measure on the public test set; the mechanism does not matter.
fn of_test(decided: &RawSettings) -> RawSettings {
    RawSettings {
        samples: None,
        seed: None,
        threads: None,
        epochs: None,
        rounds: Some(1),
        phase: Vec::new(),
        ..decided.clone()
    }
}
