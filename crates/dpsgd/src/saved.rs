//! A run directory that is read: its guarantee, its model, its report.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dpsgd_data::{Dataset, Labelled, Split, features};
use dpsgd_engine::{GradientWorker, Network};
use dpsgd_kernels::Level;
use dpsgd_privacy::Account;
use dpsgd_report::run::{Measurement, Page, found, heading, measured, verdict};
use dpsgd_report::text::{number, subscript, wrapped};
use dpsgd_report::{Sizes, json, rounding};
use dpsgd_train::checkpoint::{Checkpoint, CheckpointError};
use dpsgd_train::directory::{
    CHECKPOINT, CONFIG, LEDGER, MODEL, REPORT, RunDirectory, SUMMARY, write_atomically,
};
use dpsgd_train::ledger::{History, Standing, Witness};
use serde_json::{Map, Value, json};

use crate::evaluation::{Evaluate, Evaluation, TestSet};
use crate::facts::{FACTS, Facts};
use crate::inputs::Constants;
use crate::predict::labelled;
use crate::run::directory::saved_constants;
use crate::run::{metrics, private_test, spent_account};
use crate::settings::{RawSettings, Settings, file};
use crate::shared_ledger::{self, Place, Seen, SharedLedger};
use crate::{Error, net};

/// What the ledger of a run says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerSummary {
    /// The rounds that may have left.
    pub charged: u64,
    /// How often the run was resumed.
    pub resumes: u64,
    /// Whether the run was closed.
    pub closed: bool,
}

/// A run directory, opened to be read; also while another process trains in it.
#[derive(Clone, Debug)]
pub struct SavedRun {
    path: PathBuf,
    raw: RawSettings,
}

/// How the model of a run does, beside what the run guarantees.
#[derive(Clone, Debug)]
pub struct Evaluated {
    /// On the test set.
    pub evaluation: Evaluation,
    /// What the run leaks.
    pub account: Account,
    /// The settings of the run.
    pub settings: Settings,
    /// Its facts.
    pub facts: Facts,
}

impl SavedRun {
    /// Opens a run directory.
    ///
    /// # Guarantee
    /// The settings are, byte for byte, those the ledger was begun with, or there is an error.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let directory = RunDirectory::view(path)?;
        let raw = file::parse(&directory.file(CONFIG), &directory.config()?)?;
        Ok(Self { path: path.to_owned(), raw })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The settings as they were written down.
    pub fn raw(&self) -> &RawSettings {
        &self.raw
    }

    /// The facts.
    pub fn facts(&self) -> Result<Facts, Error> {
        Facts::read(&self.path)
    }

    /// The settings, resolved without the data.
    pub fn settings(&self) -> Result<Settings, Error> {
        Ok(self.facts()?.resolve(&self.raw)?)
    }

    /// Reads and verifies the ledger.
    pub fn ledger(&self, settings: &Settings) -> Result<LedgerSummary, Error> {
        let (directory, history) = self.history(settings)?;
        // A ledger that was shortened together with its head is whole in itself; the checkpoint remembers
        // more.
        match Checkpoint::read(&directory.file(CHECKPOINT)) {
            Ok(checkpoint) => {
                history.require(&directory.file(LEDGER), &checkpoint.ledger, "the checkpoint")?;
            }
            Err(CheckpointError::Missing(_)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(LedgerSummary { charged: history.spent(), resumes: history.resumes(), closed: history.finished() })
    }

    /// Whether the run is closed.
    pub fn is_finished(&self) -> Result<bool, Error> {
        Ok(self.ledger(&self.settings()?)?.closed)
    }

    fn history(&self, settings: &Settings) -> Result<(RunDirectory, History), Error> {
        let directory = RunDirectory::view(&self.path)?;
        let history = directory.history(&settings.mechanism, settings.seed.is_none())?;
        Ok((directory, history))
    }

    /// What the shared ledger says about this directory.
    pub fn seen_by(&self, place: &Place) -> Result<Seen, Error> {
        let (directory, history) = self.history(&self.settings()?)?;
        shared_ledger::seen(SharedLedger::view(place)?.as_ref(), &self.facts()?, &directory, &history)
    }

    /// Records the run in a shared ledger as it is now: a run that was begun without one, or in another one.
    /// If the ledger knows the run already, the directory must be as new as what it knows.
    pub fn record(&self, place: &Place) -> Result<SharedLedger, Error> {
        let Some(shared) = SharedLedger::open(place)? else {
            return Err(Error::Refused("ledger = none: name the ledger in which to record the run".into()));
        };
        // Locked: nobody trains meanwhile.
        let directory = RunDirectory::open(&self.path)?;
        let (mut facts, settings) = (self.facts()?, self.settings()?);
        let history = directory.history(&settings.mechanism, settings.seed.is_none())?;
        if facts.run.is_none() {
            facts.run = Some(shared_ledger::fresh_name()?);
            directory.write(FACTS, facts.text().as_bytes())?;
        }
        let run = facts.run.clone().unwrap_or_default();
        // Locked here, too: a copy of the directory must not be trained between the comparison and the record,
        // which would put the ledger back to an older state.
        let mut recorder = shared.record(shared_ledger::entry(&settings, &run, &self.path))?;
        if let Seen::Older(why) = shared_ledger::seen(Some(&shared), &facts, &directory, &history)? {
            return Err(Error::file(&self.path, why));
        }
        let standing = Standing {
            position: history.position(),
            charged: history.spent(),
            measured: history.measured(),
            finished: history.finished(),
        };
        let path = shared.path();
        recorder.remember(&standing).map_err(|source| Error::SharedLedger { path: path.into(), source })?;
        if self.path.join(REPORT).is_file() {
            self.write_report()?;
        }
        Ok(shared)
    }

    /// What the run leaks: everything its ledger charged.
    pub fn account(&self) -> Result<Account, Error> {
        let settings = self.settings()?;
        spent_account(&settings, self.ledger(&settings)?.charged)
    }

    /// The weights in `model.safetensors`, for the network of the run.
    pub fn weights(&self, network: &Network) -> Result<Vec<f32>, Error> {
        let path = self.path.join(MODEL);
        let bytes = std::fs::read(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Error::file(&path, "there is no model yet: finish the run with dpsgd resume")
            }
            _ => Error::file(&path, error.to_string()),
        })?;
        network
            .from_safetensors(&bytes, str::to_string)
            .map_err(|error| Error::file(&path, error.to_string()))
    }

    /// Measures the model on the public test set of the run. Needs no training data.
    pub fn evaluate(&self, threads: Option<usize>) -> Result<Evaluated, Error> {
        self.evaluate_on(None, threads)
    }

    /// Measures the model on the labelled rows of another file with the same columns, whose owner sees the
    /// result: it is a function of those rows, and no noise covers it.
    pub fn evaluate_on(&self, test: Option<&Path>, threads: Option<usize>) -> Result<Evaluated, Error> {
        let facts = self.facts()?;
        let mut settings = facts.resolve(&RawSettings { threads, ..self.raw.clone() })?;
        let ledger = self.ledger(&settings)?;
        let samples = labelled(&settings, test)?;
        let mut samples = self.prepared_like_training(&settings, samples, settings.threads)?;
        if !settings.data.class_weights.is_empty() {
            samples = samples.with_class_weights(&settings.data.class_weights)?;
        }
        let (name, spec) = net::named(&settings.net, &samples)?;
        let network = Arc::new(net::checked(&spec, &samples)?);
        (settings.net.name, settings.net.spec) = (name, Some(spec));
        let weights = self.weights(&network)?;
        let last = metrics::read(&self.path)?;
        let clip = last.last().map_or(settings.algorithm.clip.start, |last| last.clip);
        let mut test = TestSet {
            network,
            test: Arc::new(samples),
            group_size: settings.mechanism.phases()[0].sampling().group_size(),
            threads: settings.threads,
        };
        let baseline = test.baseline();
        let facts = Facts {
            test_samples: test.samples(),
            majority_share: baseline.and_then(|known| known.accuracy),
            constant_loss: baseline.and_then(|known| known.loss),
            ..facts
        };
        Ok(Evaluated {
            evaluation: test.evaluate(&weights, clip),
            account: spent_account(&settings, ledger.charged)?,
            settings,
            facts,
        })
    }

    /// The scores of new samples, one row for each: class probabilities, or the predicted value.
    ///
    /// `samples` are raw: features and normalisation are applied here as the run applied them. Predicting is
    /// post-processing of the released model and costs no privacy of the training data.
    pub fn predict(&self, samples: Dataset, threads: usize) -> Result<Vec<Vec<f32>>, Error> {
        self.predict_at(1.0, samples, threads)
    }

    /// [`predict`](Self::predict) with the scores divided by a [temperature](Self::temperature).
    pub fn predict_at(
        &self,
        temperature: f64,
        samples: Dataset,
        threads: usize,
    ) -> Result<Vec<Vec<f32>>, Error> {
        let (network, mut scores) = self.scores(samples, threads)?;
        if temperature != 1.0 {
            scores.iter_mut().for_each(|score| *score = (f64::from(*score) / temperature) as f32);
        }
        let outputs = network.outputs();
        scores.chunks_mut(outputs).for_each(|row| network.probabilities(row));
        Ok(scores.chunks(outputs).map(<[f32]>::to_vec).collect())
    }

    /// What the network puts out for raw samples, before it becomes probabilities.
    pub(crate) fn scores(&self, samples: Dataset, threads: usize) -> Result<(Arc<Network>, Vec<f32>), Error> {
        let settings = self.settings()?;
        let samples = self.prepared_like_training(&settings, samples, threads)?;
        let spec = net::named(&settings.net, &samples)?.1;
        let network = Arc::new(net::checked(&spec, &samples)?);
        let weights = self.weights(&network)?;
        let all: Vec<u32> = (0..samples.len() as u32).collect();
        let samples = Arc::new(Labelled(Arc::new(samples)));
        let mut worker = GradientWorker::new(Arc::clone(&network), samples, 1, Level::best());
        worker.weights_mut().copy_from_slice(&weights);
        let scores = worker.scores(&all);
        Ok((network, scores))
    }

    fn prepared_like_training(
        &self,
        settings: &Settings,
        samples: Dataset,
        threads: usize,
    ) -> Result<Dataset, Error> {
        use dpsgd_data::Normalisation;
        let mut split = Split { train: samples.part(0..1)?, test: samples };
        if let Some(wanted) = settings.data.features {
            split = features::of(&split, wanted, threads)?;
        }
        let constants = saved_constants(&self.path)?;
        let normalisation = match constants {
            Some(Constants { mean, std }) => Normalisation::Public { mean, std },
            None => settings.data.public_normalisation(),
        };
        split.normalise(&normalisation, &mut |_| 0.0)?;
        Ok(split.test)
    }

    /// The page of the run, from its directory alone.
    pub fn page(&self) -> Result<String, Error> {
        let facts = self.facts()?;
        let settings = facts.resolve(&self.raw)?;
        let ledger = self.ledger(&settings)?;
        let account = spent_account(&settings, ledger.charged)?;
        page(&self.path, &settings, &facts, &account, ledger)
    }

    /// Writes `report.html` again.
    pub fn write_report(&self) -> Result<PathBuf, Error> {
        let path = self.path.join(REPORT);
        write_atomically(&path, self.page()?.as_bytes()).map_err(Error::io(&path))?;
        Ok(path)
    }
}

impl Evaluated {
    /// As JSON.
    pub fn json(&self) -> Value {
        let Self { evaluation, account, settings, facts } = self;
        let note = facts.note(settings);
        let sizes = Sizes { samples: settings.samples, groups: settings.groups };
        let mut told = json::account(account, sizes, &settings.alphas);
        let mut value = Map::new();
        value.insert("test_accuracy".into(), json!(evaluation.accuracy));
        value.insert("test_loss".into(), json!(evaluation.loss));
        value.insert("test_clipping_fraction".into(), json!(evaluation.clipped));
        value.insert("test_samples".into(), json!(facts.test_samples));
        let seen = self.measurement();
        measured(&mut value, &seen, facts.baseline());
        value.insert("guarantees".into(), told["guarantees"].take());
        value.insert("refused".into(), told["refused"].take());
        value.insert("private".into(), json!(note.is_none()));
        value.insert("note".into(), json!(note));
        value.insert("uncovered".into(), json!(facts.uncovered));
        Value::Object(value)
    }

    /// What was measured, as a line of the metrics.
    fn measurement(&self) -> Measurement {
        let Self { evaluation, settings, .. } = self;
        Measurement {
            round: settings.mechanism.rounds(),
            epoch: 0.0,
            updates: 0,
            test_loss: evaluation.loss,
            test_accuracy: evaluation.accuracy,
            test_clipping_fraction: evaluation.clipped,
            two_classes: evaluation.two_classes,
            iterates: None,
            step: 0.0,
            clip: 0.0,
            epsilon: 0.0,
            delta: settings.budget.delta,
            adversary: settings.budget.adversary.name().to_string(),
            seconds: None,
            samples_per_s: None,
            private: settings.seed.is_none(),
            note: None,
        }
    }

    /// For people.
    pub fn statement(&self) -> String {
        let Self { account, settings, facts, .. } = self;
        let (seen, baseline) = (self.measurement(), facts.baseline());
        let said = format!("{} on {}: {}", facts.net, facts.data, found(&seen, baseline));
        let mut text = wrapped(&said, 0);
        if let Some(warning) = verdict(&seen, baseline) {
            text.push_str(&wrapped(&format!("WARNING: {warning}"), 0));
        }
        for given in &account.guarantees {
            text.push_str(&format!(
                "ε ≤ {} at δ = {} against {}, certified\n",
                rounding::up(given.answer.upper, 6),
                number(settings.budget.delta),
                subscript(given.adversary)
            ));
        }
        if let Some(note) = facts.note(settings) {
            text.push_str(&format!("but the run is {note}\n"));
        }
        text
    }
}

/// What an older copy of the directory could do.
fn outside(facts: &Facts) -> &'static str {
    match facts.run {
        Some(_) => {
            "yes: a shared ledger refuses or charges an older copy of this directory, unless that ledger is \
             replaced by an older copy too"
        }
        None => "no: nobody would notice if an older copy of this directory were resumed",
    }
}

/// The page of a run.
pub(crate) fn page(
    directory: &Path,
    settings: &Settings,
    facts: &Facts,
    account: &Account,
    ledger: LedgerSummary,
) -> Result<String, Error> {
    let metrics = metrics::read(directory)?;
    let resumed = match ledger.resumes {
        0 => "never".to_string(),
        1 => "once".to_string(),
        times => format!("{times} times"),
    };
    let done = metrics.last().map_or(0, |last| last.updates);
    let rows = vec![
        ("Rounds charged", ledger.charged.to_string()),
        ("Rounds whose update is in the model", done.to_string()),
        ("Rounds charged and lost", ledger.charged.saturating_sub(done).to_string()),
        ("Resumed", resumed),
        ("Known outside of this directory", outside(facts).to_string()),
    ];
    let page = Page {
        heading: heading(&facts.net, &facts.data),
        note: facts.note(settings),
        seeded: settings.seed.is_some(),
        ending: (!directory.join(SUMMARY).is_file())
            .then(|| "This run has not finished: `dpsgd resume` continues it.".to_string()),
        account,
        noise: settings.algorithm.noise.covers(),
        settings: facts.rows(settings, &account.mechanism),
        metrics: &metrics,
        baseline: facts.baseline(),
        unmeasured: facts.unmeasured(settings),
        private_test: private_test(directory)?,
        ledger: rows,
        command: settings.command()?,
    };
    Ok(page.html()?)
}
