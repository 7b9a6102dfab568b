//! A run of the native engine on a data set: everything that can be checked is checked before anything is
//! written.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dpsgd_data::{Dataset, Labelled};
use dpsgd_engine::Network;
use dpsgd_privacy::account::Question;
use dpsgd_train::ledger::Digest;
use dpsgd_train::{InnerAlgorithm, Native, Plan, Purpose, Randomness, Rule, Schedule};
use sha2::{Digest as _, Sha256};

use crate::evaluation::{PrivateTest, TestSet};
use crate::facts::Facts;
use crate::inputs::{RunData, Tested};
use crate::run::directory::{Directory, first_free};
use crate::run::{Job, Run, randomness};
use crate::saved::SavedRun;
use crate::settings::{Choose, RawSettings, Settings};
use crate::shared_ledger::{Recording, Rollback};
use crate::{Error, Observer, net, pytorch};

/// A run of the native engine that can start.
pub struct Prepared {
    /// Every setting, decided.
    pub settings: Settings,
    /// The data, not yet normalised.
    pub inputs: RunData,
    /// The network, checked.
    pub network: Arc<Network>,
    /// What the rounds will do.
    pub plan: Arc<Plan>,
    /// That the run is a try of a private selection, and what covers it; for the facts of the run.
    pub selection: Option<String>,
    /// The digest of the training samples as they were read; it stays in memory.
    data: Option<Digest>,
}

/// How a run is resumed.
#[derive(Clone, Debug, Default)]
pub struct Resume {
    /// Threads; the result does not depend on it. All cores, if nothing is given.
    pub threads: Option<usize>,
    /// The shared ledger, as the setting `ledger`.
    pub ledger: Option<PathBuf>,
    /// What to do if the directory is an older copy of itself.
    pub rollback: Rollback,
}

impl Prepared {
    /// Reads the data and checks everything.
    pub fn new(raw: &RawSettings, observer: &mut dyn Observer) -> Result<Self, Error> {
        Self::with(RunData::load(raw)?, raw, observer)
    }

    /// The same with data that the program read itself, or took a part of.
    pub fn with(mut inputs: RunData, raw: &RawSettings, observer: &mut dyn Observer) -> Result<Self, Error> {
        if let Some(warning) = inputs.warning() {
            observer.warns(&warning);
        }
        // What is cheap to refuse is refused before σ is chosen.
        let rehearsal = raw.uncalibrated().resolve_for(inputs.population)?;
        if let Question::Delta { .. } = rehearsal.question {
            return Err(Error::Refused(
                "epsilon: only `dpsgd account` takes it, to find δ; to train, give --target-epsilon (σ is \
                 chosen for it) or --max-epsilon (the run stops before it)"
                    .into(),
            ));
        }
        let follows_accuracy = |schedule: &Schedule| {
            matches!(schedule.rule, Rule::WhenWorse { .. }) && inputs.tested != Tested::Publicly
        };
        let algorithm = &rehearsal.algorithm;
        if follows_accuracy(&algorithm.step) || follows_accuracy(&algorithm.clip) {
            return Err(Error::Refused(
                "step-rule, clip-rule: when-worse follows the accuracy on a public test set, and there is none"
                    .into(),
            ));
        }
        if algorithm.choose == Choose::Better && inputs.tested != Tested::Publicly {
            return Err(Error::Refused(crate::run::NOTHING_TO_CHOOSE_BY.into()));
        }
        // Of the samples as they were given: weights and features are settings.
        let data = Some(digest(&inputs.split.train));
        let one = inputs.sample(&rehearsal.data)?;
        let (name, spec) = net::named(&rehearsal.net, &one)?;
        let network = Arc::new(net::checked(&spec, &one)?);
        algorithm.check_for(&spec)?;
        if let Some(epsilon) = raw.target() {
            observer.calibrating(epsilon);
        }
        let mut settings = raw.resolve_for(inputs.population)?;
        (settings.net.name, settings.net.spec) = (name, Some(spec));
        inputs.weigh(&settings.data.class_weights)?;
        let plan = settings.plan()?;
        // What cannot be accounted for is refused before anything is charged.
        settings.budget.spent(&settings.mechanism, settings.mechanism.rounds())?;
        // They can take a minute: not before the settings are known to be good.
        inputs.take_features(&settings, observer)?;
        Ok(Self { settings, inputs, network, plan, selection: None, data })
    }

    /// Uses an inner algorithm of the program's own; see [`Settings::with_inner`].
    pub fn use_inner(&mut self, algorithm: Arc<dyn InnerAlgorithm>) -> Result<(), Error> {
        self.settings = self.settings.clone().with_inner(algorithm);
        self.plan = self.settings.plan()?;
        Ok(())
    }

    /// What a report needs to know.
    pub fn facts(&self) -> Facts {
        Facts {
            data: self.inputs.name.clone(),
            samples: self.settings.samples,
            test_samples: match self.inputs.tested {
                Tested::Publicly | Tested::Privately => self.inputs.split.test.len() as u64,
                Tested::Never => 0,
            },
            public: self.inputs.population.public,
            uncovered: self.inputs.uncovered.clone(),
            net: self.settings.net.name.clone(),
            parameters: self.network.dimension(),
            majority_share: None,
            constant_loss: None,
            inner: self.settings.algorithm.own_inner(),
            max_epsilon: None,
            planned_rounds: None,
            selection: self.selection.clone(),
            run: None,
            begun: None,
        }
    }

    /// Begins the run in `out`, or in the first free `runs/DATA-NET-1`.
    pub fn start(mut self, out: Option<PathBuf>) -> Result<Run<Native>, Error> {
        let randomness = randomness(&self.settings, 0)?;
        let constants = self.inputs.normalise(&self.settings, &randomness)?;
        let weights = initial(&self.network, &randomness);
        let name = &self.settings.net.name;
        let path = out.unwrap_or_else(|| first_free(Path::new("runs"), &self.inputs.name, name));
        self.job(weights).start_with(&path, randomness, constants)
    }

    /// [`Prepared::start`] from given weights: those of a federation's global model.
    pub fn start_from(mut self, out: &Path, weights: Vec<f32>) -> Result<Run<Native>, Error> {
        let randomness = randomness(&self.settings, 0)?;
        let constants = self.inputs.normalise(&self.settings, &randomness)?;
        self.job(weights).start_with(out, randomness, constants)
    }

    /// Continues the run in `path` after an interruption; see [`Job::resume`].
    pub fn resume(self, path: &Path) -> Result<Run<Native>, Error> {
        self.resume_with(path, Rollback::Refuse)
    }

    fn resume_with(mut self, path: &Path, rollback: Rollback) -> Result<Run<Native>, Error> {
        let recording = Recording::new(&self.settings.ledger, self.data, rollback)?;
        let private = self.settings.seed.is_none();
        let interrupted = Directory::open(path, Arc::clone(&self.plan), private, &recording)?;
        self.inputs.normalise_again(&self.settings.data, interrupted.directory.constants())?;
        self.job(Vec::new()).resume_with(interrupted)
    }

    /// The network on its training samples; the samples are taken out of `inputs`.
    pub fn model(&mut self) -> Arc<Native> {
        let train = std::mem::replace(&mut self.inputs.split.train, self.inputs.split.test.clone());
        Arc::new(self.settings.algorithm.inside(native(&self.network, Arc::new(train))))
    }

    fn job(self, weights: Vec<f32>) -> Job<Native> {
        let facts = self.facts();
        let (tested, settings) = (self.inputs.tested, &self.settings);
        let private_mu = settings.data.private_test.as_ref().map(|(_, mu)| *mu);
        let (train, test) = (Arc::new(self.inputs.split.train), Arc::new(self.inputs.split.test));
        let model = Arc::new(settings.algorithm.inside(native(&self.network, train)));
        let phases = self.settings.mechanism.phases();
        let test = TestSet {
            network: Arc::clone(&self.network),
            test,
            group_size: phases[0].sampling().group_size(),
            threads: self.plan.threads(),
        };
        let network = self.network;
        let job = Job::with_facts(self.settings, facts, model, weights);
        let job = match (tested, private_mu) {
            (Tested::Publicly, _) => job.tested_by(test),
            (Tested::Privately, Some(mu)) => job.tested_privately_by(PrivateTest { test, mu }),
            (Tested::Privately, None) | (Tested::Never, _) => job,
        };
        let exported = Arc::clone(&network);
        let job = job
            .described_by(move |settings, constants| pytorch::program(settings, &network, constants))
            .exported_by(move |weights, texts| {
                exported.to_safetensors(weights, texts).map_err(|error| error.to_string())
            });
        match self.data {
            Some(data) => job.on(data),
            None => job,
        }
    }
}

/// The network of the engine on samples of a data set.
pub fn native(network: &Arc<Network>, samples: Arc<Dataset>) -> Native {
    Native::new(Arc::clone(network), Arc::new(Labelled(samples)))
}

/// The initial weights that a run draws.
pub fn initial(network: &Network, randomness: &Randomness) -> Vec<f32> {
    let mut stream = randomness.stream(Purpose::Initialisation, 0);
    network.initial(|| stream.unit() as f32)
}

/// What tells one data set from another: shape, inputs and targets, in their order.
fn digest(samples: &Dataset) -> Digest {
    let mut hash = Sha256::new();
    samples.shape().iter().for_each(|&side| hash.update((side as u64).to_le_bytes()));
    samples.each_row(|row| hash.update(row));
    Digest(hash.finalize().into())
}

/// Resumes the run in a directory that `dpsgd train` made.
pub fn resume(
    path: &Path,
    threads: Option<usize>,
    observer: &mut dyn Observer,
) -> Result<Run<Native>, Error> {
    resume_with(path, Resume { threads, ..Resume::default() }, observer)
}

/// [`resume`] with another shared ledger than the usual one, or with an older copy of a directory.
pub fn resume_with(path: &Path, how: Resume, observer: &mut dyn Observer) -> Result<Run<Native>, Error> {
    let run = SavedRun::open(path)?;
    let raw = RawSettings { threads: how.threads, ledger: how.ledger, ..run.raw().clone() };
    let mut prepared = Prepared::new(&raw, observer)?;
    let facts = run.facts()?;
    facts.remember(&mut prepared.settings);
    prepared.selection = facts.selection;
    prepared.resume_with(path, how.rollback)
}
