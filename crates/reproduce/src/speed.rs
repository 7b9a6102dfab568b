//! How fast a training round is, as JSON values to compare with other frameworks.
//!
//! A step is everything a training round does: draw the batch, charge the round in a ledger on disk, compute,
//! clip and sum the groups' gradients, add noise from ChaCha20, update the model. Only reading the data is
//! left out. Repetitions of the methods are interleaved and the median is reported, because machines are
//! shared: compare ratios within one call.
//!
//! | method | what it is |
//! |---|---|
//! | `individual` | s = 1 |
//! | `mixed` | groups of 8 |
//! | `batch` | one group |
//! | `plain` | not private: no clip, noise or ledger |
//! | `sgd`, `momentum`, `adam`, `adagrad`, `rmsprop` | that inner algorithm on groups of at most 64 |
//!
//! The noise is exact; with `_fast` appended to the name of a method, it is fast.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dpsgd::Error;
use dpsgd_engine::spec::{LayerSpec, NetworkSpec};
use dpsgd_engine::{Label, Network, Samples, zoo};
use dpsgd_privacy::mechanism::{Length, NoiseScale, PhaseConfig, RunConfig, Sampling};
use dpsgd_train::ledger::{Header, Ledger};
use dpsgd_train::{
    Inner, Model, ModelError, Native, NoiseKind, PlanConfig, Purpose, Randomness, Stream, Trainer,
    TrainerError, Worker,
};
use serde_json::{Value, json};

use crate::{error, refuse};

/// What is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeedOptions {
    /// Networks: lenet5, paper_cnn.
    pub net: Vec<String>,
    /// Samples per round.
    pub batch: Vec<usize>,
    /// The methods; see the [module](self).
    pub clipping: Vec<String>,
    /// Threads.
    pub threads: usize,
    /// Repetitions of each method.
    pub reps: usize,
    /// Seconds that a repetition takes.
    pub slice: f64,
}

impl Default for SpeedOptions {
    fn default() -> Self {
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        Self {
            net: names(&["lenet5", "paper_cnn"]),
            batch: vec![64, 512],
            clipping: names(&["individual", "batch", "mixed"]),
            threads: 2,
            reps: 5,
            slice: 0.5,
        }
    }
}

/// The clipping norm, the noise in units of it and the step of all methods, and of the scripts that measure
/// others.
const CLIP: f64 = 1.0;
const NOISE_MULTIPLIER: f64 = 1.0;
const STEP: f64 = 0.05;
/// Samples of a mixed group, and the most of a group with an inner algorithm.
const MIXED: usize = 8;
const INNER: usize = 64;

/// Measures; hands over one JSON object for each network, batch and method.
pub fn run(options: &SpeedOptions, line: &mut dyn FnMut(&Value)) -> Result<(), Error> {
    options.check()?;
    let place = tempfile::tempdir().map_err(error::io(&std::env::temp_dir()))?;
    for name in &options.net {
        for &batch in &options.batch {
            options.setting(name, batch, place.path(), line)?;
        }
    }
    Ok(())
}

/// Random samples.
struct Random {
    inputs: Vec<f32>,
    length: usize,
    classes: Vec<u32>,
}

impl Random {
    fn new(count: usize, length: usize, stream: &mut Stream) -> Self {
        let mut inputs = vec![0.0; count * length];
        dpsgd_train::noise::standard_normals(stream, &mut inputs);
        Self { inputs, length, classes: (0..count).map(|_| stream.below(10)).collect() }
    }
}

impl Samples for Random {
    fn count(&self) -> usize {
        self.classes.len()
    }

    fn copy_input(&self, index: u32, out: &mut [f32]) {
        out.copy_from_slice(&self.inputs[index as usize * self.length..][..self.length]);
    }

    fn label(&self, index: u32) -> Label<'_> {
        Label::Class(self.classes[index as usize])
    }
}

fn network(name: &str) -> Result<NetworkSpec, Error> {
    match name {
        "lenet5" => Ok(zoo::lenet5([28, 28, 1], 10, LayerSpec::Relu)),
        "paper_cnn" | "paper-cnn" => Ok(zoo::paper_cnn([32, 32, 3], 10)),
        _ => refuse(format!("net = {name}: lenet5 or paper_cnn")),
    }
}

/// A private method: the size of a group, the algorithm in it, and the noise.
struct Method {
    size: usize,
    inner: Inner,
    noise: NoiseKind,
}

impl Method {
    fn named(name: &str, batch: usize) -> Result<Self, Error> {
        let (name, noise) = match name.strip_suffix("_fast") {
            Some(name) => (name, NoiseKind::Fast),
            None => (name, NoiseKind::Exact),
        };
        let (size, inner) = match name {
            "individual" => (1, Inner::Gradient),
            "mixed" => (MIXED, Inner::Gradient),
            "batch" => (batch, Inner::Gradient),
            name => match Inner::named(name, 0.01) {
                Some(inner) => (INNER.min(batch), inner),
                None => {
                    return refuse(format!(
                        "clipping = {name}: individual, mixed, batch, plain, sgd, momentum, adam, adagrad or \
                         rmsprop"
                    ));
                }
            },
        };
        if !batch.is_multiple_of(size) {
            return refuse(format!("batch = {batch}: a multiple of {size} for {name}"));
        }
        Ok(Self { size, inner, noise })
    }
}

/// One step of a method.
type Step = Box<dyn FnMut() -> Result<(), Error>>;

/// A private round.
fn private(
    model: &Arc<Native>,
    weights: Vec<f32>,
    batch: usize,
    Method { size, inner, noise }: Method,
    threads: usize,
    ledger: &Path,
) -> Result<Step, Error> {
    let mechanism = RunConfig::single(PhaseConfig {
        sampling: Sampling::Subsample {
            samples: model.samples() as u64,
            groups: (batch / size) as u64,
            group_size: size as u64,
        },
        length: Length::Rounds(1_000_000_000),
        noise: NoiseScale::Multiplier(NOISE_MULTIPLIER),
        filtered: false,
    })
    .check()?;
    let mut plan = PlanConfig::new(mechanism, CLIP, STEP);
    plan.inner = inner.into();
    plan.noise = noise;
    plan.threads = threads;
    let plan = plan.check().map_err(|error| Error::Refused(error.to_string()))?;
    let ledger = Ledger::create(ledger, Header::new(b"bench", Arc::new(plan), true))?;
    let mut trainer = Trainer::new(ledger, model.clone(), weights, Randomness::from_system()?)?;
    Ok(Box::new(move || Ok(trainer.round().map(drop)?)))
}

/// The same network without privacy: the mean gradient of a fixed batch, a share of it on every thread.
fn plain<M: Model>(
    model: &Arc<M>,
    mut weights: Vec<f32>,
    batch: usize,
    threads: usize,
) -> Result<Step, Error> {
    let pool = error::pool(threads)?;
    let samples: Vec<u32> = (0..batch as u32).collect();
    let share = batch.div_ceil(threads);
    let worker = |_| Ok((model.worker(share)?, vec![0.0f32; weights.len()], Ok(0.0)));
    let workers: Result<Vec<_>, ModelError> = (0..threads).map(worker).collect();
    let mut workers = workers.map_err(TrainerError::Model)?;
    Ok(Box::new(move || {
        pool.scope(|scope| {
            for ((worker, gradient, loss), samples) in workers.iter_mut().zip(samples.chunks(share)) {
                let weights = &weights;
                scope.spawn(move |_| {
                    worker.weights_mut().copy_from_slice(weights);
                    *loss = worker.gradient(samples, gradient);
                });
            }
        });
        for ((_, gradient, loss), samples) in workers.iter_mut().zip(samples.chunks(share)) {
            std::mem::replace(loss, Ok(0.0)).map_err(TrainerError::Model)?;
            let step = (STEP * samples.len() as f64 / batch as f64) as f32;
            for (w, g) in weights.iter_mut().zip(gradient) {
                *w -= step * *g;
            }
        }
        Ok(())
    }))
}

impl SpeedOptions {
    fn check(&self) -> Result<(), Error> {
        if self.threads == 0 || self.reps == 0 || !(self.slice > 0.0 && self.slice <= 3600.0) {
            return refuse("threads, reps and slice must be above 0, slice at most 3600".into());
        }
        if let Some(batch) = self.batch.iter().find(|batch| !(1..=1 << 20).contains(*batch)) {
            return refuse(format!("batch = {batch}: between 1 and {}", 1 << 20));
        }
        for name in &self.net {
            network(name)?;
        }
        for name in self.clipping.iter().filter(|name| *name != "plain") {
            for &batch in &self.batch {
                Method::named(name, batch)?;
            }
        }
        Ok(())
    }

    /// Measures all methods on one network with one batch size.
    fn setting(
        &self,
        name: &str,
        batch: usize,
        place: &Path,
        line: &mut dyn FnMut(&Value),
    ) -> Result<(), Error> {
        let mut steps = self.steps(name, batch, place)?;
        for (step, _) in &mut steps {
            step()?;
            step()?;
        }
        for _ in 0..self.reps {
            for (step, rates) in &mut steps {
                let (mut count, began) = (0, Instant::now());
                while count < 2 || began.elapsed() < Duration::from_secs_f64(self.slice) {
                    step()?;
                    count += 1;
                }
                rates.push((count * batch) as f64 / began.elapsed().as_secs_f64());
            }
        }
        for (method, (_, rates)) in self.clipping.iter().zip(&mut steps) {
            line(&json!({
                "net": name,
                "batch": batch,
                "threads": self.threads,
                "method": format!("dpsgd_{method}"),
                "samples_per_s": (10.0 * median(rates)).round() / 10.0,
            }));
        }
        Ok(())
    }

    /// A step of each method, with the rates that are measured.
    fn steps(&self, name: &str, batch: usize, place: &Path) -> Result<Vec<(Step, Vec<f64>)>, Error> {
        let network = Network::new(&network(name)?).map_err(dpsgd::net::NetError::Network)?;
        let dimension = network.dimension();
        let randomness = Randomness::from_seed(0, 0);
        let mut stream = randomness.stream(Purpose::Initialisation, 0);
        let weights = network.initial(|| stream.unit() as f32);
        let length = network.spec().input.iter().product();
        // As many as four batches.
        let samples = Random::new(4 * batch, length, &mut randomness.stream(Purpose::Splitting, 0));
        let model = Arc::new(Native::new(Arc::new(network), Arc::new(samples)));
        let mut steps = Vec::new();
        for (i, method) in self.clipping.iter().enumerate() {
            let step = if method == "plain" {
                plain(&model, weights.clone(), batch, self.threads)?
            } else {
                let ledger = place.join(format!("{batch}-{i}-{dimension}"));
                let method = Method::named(method, batch)?;
                private(&model, weights.clone(), batch, method, self.threads, &ledger)?
            };
            steps.push((step, Vec::new()));
        }
        Ok(steps)
    }
}

/// The median of at least one number.
fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    let middle = rates.len() / 2;
    if rates.len() % 2 == 1 { rates[middle] } else { (rates[middle - 1] + rates[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(clipping: &[&str]) -> SpeedOptions {
        SpeedOptions {
            net: vec!["lenet5".into()],
            batch: vec![8],
            clipping: clipping.iter().map(|name| name.to_string()).collect(),
            threads: 1,
            reps: 2,
            slice: 1e-3,
        }
    }

    #[test]
    fn every_method_is_measured() {
        let methods = ["individual", "mixed_fast", "batch", "plain", "adam"];
        let mut lines = Vec::new();
        run(&short(&methods), &mut |line| lines.push(line.clone())).unwrap();
        assert_eq!(lines.len(), methods.len());
        for (line, method) in lines.iter().zip(methods) {
            assert_eq!(line["method"], format!("dpsgd_{method}"));
            assert!(line["samples_per_s"].as_f64().unwrap() > 0.0);
        }
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let refused = |options: SpeedOptions| run(&options, &mut |_| {}).unwrap_err().to_string();
        assert!(refused(short(&["sideways"])).starts_with("clipping = sideways: individual, mixed"));
        assert_eq!(
            refused(SpeedOptions { batch: vec![9], ..short(&["mixed"]) }),
            "batch = 9: a multiple of 8 for mixed"
        );
        assert!(refused(SpeedOptions { reps: 0, ..short(&["batch"]) }).contains("above 0"));
    }
}
