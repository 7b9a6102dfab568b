//! `dpsgd bench`: how fast a round is, as JSON lines that stand beside those of other frameworks.
//!
//! A step is everything a training round does: the batch is drawn, the round is charged in a ledger on disk, the
//! groups' gradients are computed, clipped and summed, noise from ChaCha20 is added and the model
//! is updated. Only the reading of data is left out. Repetitions of the methods are interleaved and
//! the median is printed, because machines are shared: compare ratios of one run.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use dpsgd_engine::spec::{LayerSpec, NetworkSpec};
use dpsgd_engine::{Network, Samples, Target, zoo};
use dpsgd_privacy::mechanism::{Length, Noise, PhaseConfig, RunConfig, Sampling};
use dpsgd_train::ledger::{Header, Ledger};
use dpsgd_train::{
    Inner, Model, Native, NoiseKind, PlanConfig, Purpose, Randomness, Stream, Trainer, Worker,
};
use rayon::{ThreadPool, ThreadPoolBuilder};
use serde_json::json;

use crate::{Failure, print};

/// The flags of `dpsgd bench`.
#[derive(Args)]
#[command(after_help = "\
Methods: individual (s = 1), mixed (groups of 8), batch (one group), plain (not private: no clip, noise or ledger), \
and the inner algorithms sgd, momentum, adam, adagrad, rmsprop on groups of at most 64. The noise is exact; with _fast \
behind the name of a method it is fast.

Example:
  dpsgd bench --net lenet5,paper_cnn --batch 64,512 --clipping individual,batch,mixed --threads 2")]
pub struct Bench {
    /// Networks: lenet5, paper_cnn
    #[arg(long, value_delimiter = ',', default_value = "lenet5,paper_cnn")]
    net: Vec<String>,
    /// Samples a round
    #[arg(long, value_delimiter = ',', default_value = "64,512")]
    batch: Vec<usize>,
    /// What is measured (see below)
    #[arg(long, value_delimiter = ',', default_value = "individual,batch,mixed")]
    clipping: Vec<String>,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Repetitions of each method
    #[arg(long, default_value_t = 5)]
    reps: usize,
    /// Seconds a repetition takes
    #[arg(long, default_value_t = 0.5)]
    slice: f64,
}

/// The clipping norm, the noise in units of it and the step of all methods and of the peers' script.
const CLIP: f64 = 1.0;
const NOISE_MULTIPLIER: f64 = 1.0;
const STEP: f64 = 0.05;
/// Samples of a mixed group, and the most of a group with an inner algorithm.
const MIXED: usize = 8;
const INNER: usize = 64;

/// Random samples, as many as four batches.
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
    fn target(&self, index: u32) -> Target<'_> {
        Target::Class(self.classes[index as usize])
    }
}

fn network(name: &str) -> Result<NetworkSpec, Failure> {
    match name {
        "lenet5" => Ok(zoo::lenet5([28, 28, 1], 10, LayerSpec::Relu)),
        "paper_cnn" | "paper-cnn" => Ok(zoo::paper_cnn([32, 32, 3], 10)),
        _ => Err(Failure::Input(format!("net = {name}: lenet5 or paper_cnn"))),
    }
}

/// The size of a group, the algorithm in it and the noise, for every method but `plain`.
fn method(name: &str, batch: usize) -> Result<(usize, Inner, NoiseKind), Failure> {
    let (name, noise) = match name.strip_suffix("_fast") {
        Some(name) => (name, NoiseKind::Fast),
        None => (name, NoiseKind::Exact),
    };
    let inner = |name: &str| {
        Inner::named(name, 0.01).ok_or_else(|| {
            Failure::Input(format!(
                "clipping = {name}: individual, mixed, batch, plain, sgd, momentum, adam, adagrad or rmsprop"
            ))
        })
    };
    let (size, inner) = match name {
        "individual" => (1, Inner::Gradient),
        "mixed" => (MIXED, Inner::Gradient),
        "batch" => (batch, Inner::Gradient),
        name => (INNER.min(batch), inner(name)?),
    };
    if !batch.is_multiple_of(size) {
        return Err(Failure::Input(format!("batch = {batch}: a multiple of {size} for {name}")));
    }
    Ok((size, inner, noise))
}

/// One step of a method.
type Step<'a> = Box<dyn FnMut() -> Result<(), Failure> + 'a>;

fn machine(error: impl std::fmt::Display) -> Failure {
    Failure::Machine(error.to_string())
}

/// A private round.
fn private<'a, M: Model>(
    model: &'a M,
    weights: Vec<f32>,
    batch: usize,
    (size, inner, noise): (usize, Inner, NoiseKind),
    threads: usize,
    ledger: &Path,
) -> Result<Step<'a>, Failure> {
    let mechanism = RunConfig::single(PhaseConfig {
        sampling: Sampling::Subsample {
            samples: model.samples() as u64,
            groups: (batch / size) as u64,
            group_size: size as u64,
        },
        length: Length::Rounds(1_000_000_000),
        noise: Noise::Multiplier(NOISE_MULTIPLIER),
        filtered: false,
    })
    .check()?;
    let mut ledger =
        Ledger::create(ledger, Header::new(b"bench", mechanism.clone(), true)).map_err(machine)?;
    let mut plan = PlanConfig::new(mechanism, CLIP, STEP);
    plan.inner = inner.into();
    plan.noise = noise;
    plan.threads = threads;
    let plan = plan.check().map_err(|error| Failure::Input(error.to_string()))?;
    let randomness = Randomness::from_system().map_err(machine)?;
    let mut trainer = Trainer::new(plan, model, weights, randomness).map_err(machine)?;
    Ok(Box::new(move || trainer.round(&mut ledger).map(drop).map_err(machine)))
}

/// The same network without privacy: the mean gradient of a fixed batch, every thread its share.
fn plain<'a, M: Model>(
    model: &'a M,
    mut weights: Vec<f32>,
    batch: usize,
    threads: usize,
) -> Result<Step<'a>, Failure> {
    let pool: ThreadPool = ThreadPoolBuilder::new().num_threads(threads).build().map_err(machine)?;
    let samples: Vec<u32> = (0..batch as u32).collect();
    let mut workers: Vec<_> = (0..threads).map(|_| (model.worker(), vec![0.0f32; weights.len()])).collect();
    Ok(Box::new(move || {
        let share = batch.div_ceil(threads);
        pool.scope(|scope| {
            for ((worker, gradient), samples) in workers.iter_mut().zip(samples.chunks(share)) {
                let weights = &weights;
                scope.spawn(move |_| {
                    worker.weights_mut().copy_from_slice(weights);
                    worker.gradient(samples, gradient);
                });
            }
        });
        for ((_, gradient), samples) in workers.iter().zip(samples.chunks(share)) {
            let step = (STEP * samples.len() as f64 / batch as f64) as f32;
            for (w, g) in weights.iter_mut().zip(gradient) {
                *w -= step * g;
            }
        }
        Ok(())
    }))
}

/// A directory for the ledgers that goes away with its owner.
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("dpsgd-bench-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| machine(format!("{}: {error}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Nothing depends on it; a directory that cannot be removed stays in the temporary place.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Bench {
    /// Measures and prints.
    pub fn run(self) -> Result<(), Failure> {
        if self.threads == 0 || self.reps == 0 || !(self.slice > 0.0 && self.slice <= 3600.0) {
            return Err(Failure::Input("threads, reps and slice must be above 0, slice at most 3600".into()));
        }
        if let Some(batch) = self.batch.iter().find(|batch| !(1..=1 << 20).contains(*batch)) {
            return Err(Failure::Input(format!("batch = {batch}: between 1 and {}", 1 << 20)));
        }
        for name in &self.net {
            network(name)?;
        }
        for (name, &batch) in self.clipping.iter().flat_map(|name| self.batch.iter().map(move |b| (name, b)))
        {
            if name != "plain" {
                method(name, batch)?;
            }
        }
        let place = Temporary::new()?;
        for name in &self.net {
            for &batch in &self.batch {
                self.setting(name, batch, &place.0)?;
            }
        }
        Ok(())
    }

    fn setting(&self, name: &str, batch: usize, place: &Path) -> Result<(), Failure> {
        let network = Network::new(&network(name)?).map_err(|error| Failure::Input(error.to_string()))?;
        let randomness = Randomness::from_seed(0, 0);
        let mut stream = randomness.stream(Purpose::Initialisation, 0);
        let weights = network.initial(|| stream.unit() as f32);
        let length = network.spec().input.iter().product();
        let samples = Random::new(4 * batch, length, &mut randomness.stream(Purpose::Splitting, 0));
        // The size of a group matters to batch normalisation only.
        let model = Native::new(&network, &samples, 1).map_err(machine)?;
        let mut steps: Vec<(Step, Vec<f64>)> = Vec::new();
        for (i, name) in self.clipping.iter().enumerate() {
            let weights = weights.clone();
            let step = if name == "plain" {
                plain(&model, weights, batch, self.threads)?
            } else {
                let method = method(name, batch)?;
                let ledger = place.join(format!("{batch}-{i}-{}", network.dimension()));
                private(&model, weights, batch, method, self.threads, &ledger)?
            };
            steps.push((step, Vec::new()));
        }
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
            rates.sort_by(f64::total_cmp);
            let middle = rates.len() / 2;
            let median =
                if rates.len() % 2 == 1 { rates[middle] } else { (rates[middle - 1] + rates[middle]) / 2.0 };
            let line = json!({
                "net": name,
                "batch": batch,
                "threads": self.threads,
                "method": format!("dpsgd_{method}"),
                "samples_per_s": (10.0 * median).round() / 10.0,
            });
            print(&format!("{line}\n"))?;
        }
        Ok(())
    }
}
