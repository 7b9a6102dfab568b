//! What to run: settings, a model, where it starts, and what measures it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use dpsgd_train::directory::RunDirectory;
use dpsgd_train::ledger::Digest;
use dpsgd_train::{Model, Randomness, Trainer, Unrecorded};
use safetensors::tensor::{Dtype, TensorView, serialize};

use super::Run;
use super::directory::{Directory, Interrupted, discard};
use crate::Error;
use crate::date::today;
use crate::evaluation::{Evaluate, PrivateTest};
use crate::facts::Facts;
use crate::inputs::Constants;
use crate::settings::{Choose, Settings};
use crate::shared_ledger::{Recording, Rollback};

/// Weights as a safetensors file, with a few texts beside them.
pub type Export = dyn Fn(&[f32], HashMap<String, String>) -> Result<Vec<u8>, String> + Send;

/// `model.py`, from the settings and the constants of a private normalisation.
pub(crate) type Program = dyn Fn(&Settings, Option<&Constants>) -> String + Send;

/// A run that has not begun: any model, under any settings.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use dpsgd::{Job, PerSample, RawSettings};
///
/// // The mean of 1000 private numbers: loss ½(w − x)².
/// let numbers: Vec<f32> = (0..1000).map(|i| (i % 7) as f32).collect();
/// let model = PerSample::new(1, numbers.len(), move |w, i, gradient| {
///     let error = w[0] - numbers[i as usize];
///     gradient[0] += error;
///     Ok(0.5 * error * error)
/// });
/// let settings = RawSettings { samples: Some(1000), groups: Some(50), ..Default::default() }.resolve()?;
/// let job = Job::new(settings, Arc::new(model), vec![0.0]);
/// println!("{}", job.start_or_resume("runs/mean".as_ref())?.train(&mut ())?.statement);
/// # Ok::<(), dpsgd::Error>(())
/// ```
pub struct Job<M: Model> {
    pub(crate) settings: Settings,
    pub(crate) facts: Facts,
    model: Arc<M>,
    weights: Vec<f32>,
    test: Option<Box<dyn Evaluate>>,
    private_test: Option<PrivateTest>,
    export: Box<Export>,
    data: Option<Digest>,
    rollback: Rollback,
    program: Option<Box<Program>>,
}

impl<M: Model> Job<M> {
    /// A model of the program's own, from the given initial weights. The names of the data and of the network
    /// in reports are `data` and `net` of the settings.
    pub fn new(mut settings: Settings, model: Arc<M>, weights: Vec<f32>) -> Self {
        if !settings.mechanism.size_is_public() {
            // Neither N nor the time of rounds, which follows it, may be written down.
            settings.samples = None;
        }
        settings.groups = settings.mechanism.phases()[0].sampling().groups().or(settings.divisor(0));
        let facts = Facts {
            data: settings.data.source.short_name(),
            samples: settings.mechanism.phases()[0].sampling().population(),
            test_samples: 0,
            public: false,
            uncovered: Vec::new(),
            net: settings.net.name.clone(),
            parameters: model.dimension(),
            majority_share: None,
            constant_loss: None,
            inner: settings.algorithm.own_inner(),
            max_epsilon: None,
            planned_rounds: None,
            selection: None,
            run: None,
            begun: None,
        };
        Self::with_facts(settings, facts, model, weights)
    }

    pub(crate) fn with_facts(settings: Settings, mut facts: Facts, model: Arc<M>, weights: Vec<f32>) -> Self {
        facts.note_budget(&settings);
        Self {
            settings,
            facts,
            model,
            weights,
            test: None,
            private_test: None,
            export: Box::new(flat),
            program: None,
            data: None,
            rollback: Rollback::Refuse,
        }
    }

    /// Says what the data are, byte for byte in an order that is always the same. The shared ledger keeps a
    /// digest of them under a key of its own, and the run can be resumed on these data only.
    pub fn on_data(self, bytes: &[u8]) -> Self {
        self.on(Digest::of(&[bytes]))
    }

    pub(crate) fn on(self, data: Digest) -> Self {
        Self { data: Some(data), ..self }
    }

    /// Resumes a directory that is an older copy of itself: what the newer copy charged counts as spent, and
    /// the run goes on after it. Without this, such a directory is refused.
    pub fn charging_rollback(self) -> Self {
        Self { rollback: Rollback::Charge, ..self }
    }

    pub(crate) fn recording(&self) -> Result<Recording, Error> {
        Recording::new(&self.settings.ledger, self.data, self.rollback)
    }

    /// Measures the model on **public** samples after every epoch.
    pub fn tested_by(mut self, test: impl Evaluate + 'static) -> Self {
        self.facts.test_samples = test.samples();
        let baseline = test.baseline().unwrap_or_default();
        (self.facts.majority_share, self.facts.constant_loss) = (baseline.accuracy, baseline.loss);
        self.test = Some(Box::new(test));
        self
    }

    /// Measures the finished model once on a private test set, whose µ the settings must count.
    pub(crate) fn tested_privately_by(mut self, test: PrivateTest) -> Self {
        self.private_test = Some(test);
        self
    }

    /// Saves the model in the names and shapes of its own; without it, all weights are one tensor, `weights`.
    pub fn exported_by(
        mut self,
        export: impl Fn(&[f32], HashMap<String, String>) -> Result<Vec<u8>, String> + Send + 'static,
    ) -> Self {
        self.export = Box::new(export);
        self
    }

    /// Writes a program beside the model that loads it in PyTorch.
    pub(crate) fn described_by(
        mut self,
        program: impl Fn(&Settings, Option<&Constants>) -> String + Send + 'static,
    ) -> Self {
        self.program = Some(Box::new(program));
        self
    }

    /// Begins the run in a new or empty directory.
    pub fn start(self, path: &Path) -> Result<Run<M>, Error> {
        self.settings.algorithm.check_for_own_model()?;
        let randomness = self.randomness(0)?;
        self.start_with(path, randomness, None)
    }

    /// Continues the run in `path` after an interruption.
    ///
    /// # Guarantee
    /// Every round that the ledger charged counts as spent, whether or not its update reached the checkpoint;
    /// none is done again, and the randomness is fresh. Settings other than those the run began with are
    /// refused.
    pub fn resume(self, path: &Path) -> Result<Run<M>, Error> {
        self.settings.algorithm.check_for_own_model()?;
        let written = RunDirectory::view(path)?.config()?;
        if written != self.settings.config_text()?.as_bytes() {
            return Err(Error::file(
                path.join(dpsgd_train::directory::CONFIG),
                "the run was begun with other settings than those given now; resume it with the same ones, \
                 or begin a new run in another directory",
            ));
        }
        let (plan, private) = (self.settings.plan()?, self.settings.seed.is_none());
        let interrupted = Directory::open(path, plan, private, &self.recording()?)?;
        self.resume_with(interrupted)
    }

    /// [`Job::resume`] where `path` holds a run, [`Job::start`] elsewhere.
    pub fn start_or_resume(self, path: &Path) -> Result<Run<M>, Error> {
        if path.join(dpsgd_train::directory::LEDGER).is_file() { self.resume(path) } else { self.start(path) }
    }

    pub(crate) fn randomness(&self, resumes: u64) -> Result<Randomness, Error> {
        randomness(&self.settings, resumes)
    }

    pub(crate) fn start_with(
        mut self,
        path: &Path,
        randomness: Randomness,
        constants: Option<Constants>,
    ) -> Result<Run<M>, Error> {
        if self.settings.uses_samples && !self.facts.public {
            return Err(Error::Refused(
                "rate, rounds-per-epoch, groups: they were computed from the size of the data, which is \
                 private; give all of them that the sampler needs as public constants"
                    .into(),
            ));
        }
        if self.settings.algorithm.choose == Choose::Better && self.test.is_none() {
            return Err(Error::Refused(super::NOTHING_TO_CHOOSE_BY.into()));
        }
        let plan = self.settings.plan()?;
        // What cannot be accounted for is refused before anything is charged.
        self.settings.budget.spent(&self.settings.mechanism, self.settings.mechanism.rounds())?;
        // A trainer that records nothing refuses what does not fit together before anything is written.
        let rehearsal = Unrecorded::new(Arc::clone(&plan));
        drop(Trainer::new(
            rehearsal,
            Arc::clone(&self.model),
            self.weights.clone(),
            Randomness::from_seed(0, 0),
        )?);
        let existed = path.exists();
        let config = self.settings.config_text()?;
        let private = randomness.is_private();
        let recording = self.recording()?;
        self.facts.run = recording.name()?;
        // The day of a privately chosen try would tell how many came before it, which must stay secret.
        self.facts.begun = self.facts.selection.is_none().then(today);
        let (directory, mut ledger) =
            Directory::create(path, &config, &self.facts, Arc::clone(&plan), private, constants)?;
        let begun = recording.begin(&self.settings, &self.facts, path, &mut ledger).and_then(|()| {
            let trainer = Trainer::new(ledger, self.model, self.weights, randomness)?;
            directory.save(trainer.state(), trainer.ledger(), 0, 0.0)?;
            Ok(trainer)
        });
        match begun {
            Ok(trainer) => Ok(Run {
                settings: self.settings,
                facts: self.facts,
                directory,
                trainer,
                test: self.test,
                private_test: self.private_test,
                export: self.export,
                program: self.program,
                seconds: 0.0,
                not_finite: 0,
            }),
            Err(error) => {
                discard(path, existed);
                recording.forget(&self.facts);
                Err(error)
            }
        }
    }

    pub(crate) fn resume_with(mut self, interrupted: Interrupted) -> Result<Run<M>, Error> {
        let Interrupted { directory, ledger, state, seconds } = interrupted;
        let begun = Facts::read(directory.path())?;
        (self.facts.run, self.facts.begun) = (begun.run, begun.begun);
        let randomness = self.randomness(ledger.resumes())?;
        Ok(Run {
            trainer: Trainer::resume(ledger, self.model, state, randomness)?,
            settings: self.settings,
            facts: self.facts,
            directory,
            test: self.test,
            private_test: self.private_test,
            export: self.export,
            program: self.program,
            seconds,
            not_finite: 0,
        })
    }
}

/// The randomness of a run that was resumed this often: from the operating system, unless there is a seed.
pub(crate) fn randomness(settings: &Settings, resumes: u64) -> Result<Randomness, Error> {
    match settings.seed {
        Some(seed) => Ok(Randomness::from_seed(seed, resumes)),
        None => Ok(Randomness::from_system()?),
    }
}

/// All weights as one tensor.
fn flat(weights: &[f32], texts: HashMap<String, String>) -> Result<Vec<u8>, String> {
    let bytes: Vec<u8> = weights.iter().flat_map(|w| w.to_le_bytes()).collect();
    let view = TensorView::new(Dtype::F32, vec![weights.len()], &bytes).map_err(|error| error.to_string())?;
    serialize([("weights", view)], Some(texts)).map_err(|error| error.to_string())
}
