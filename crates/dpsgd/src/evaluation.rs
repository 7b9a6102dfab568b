//! How a model does on samples that it was not trained on.

mod private;

pub use private::PrivateTest;

use std::sync::Arc;
use std::thread;

use dpsgd_data::{Dataset, Labelled};
use dpsgd_engine::spec::Loss;
use dpsgd_engine::{GradientWorker, Network};
use dpsgd_kernels::Level;
use dpsgd_report::run::{Baseline, TwoClasses};

/// What is measured on the test set.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Evaluation {
    /// The mean loss.
    pub loss: f64,
    /// The share of samples that are predicted correctly; none for regression.
    pub accuracy: Option<f64>,
    /// The share of groups of test samples whose gradient is longer than C.
    pub clipped: f64,
    /// More, where there are two classes.
    pub two_classes: Option<TwoClasses>,
}

/// Measures weights on **public** samples. What it says is written down without noise.
pub trait Evaluate: Send {
    /// The number of samples it measures on.
    fn samples(&self) -> u64;

    /// Measures the given weights; `clip` is the C of the last round.
    fn evaluate(&mut self, weights: &[f32], clip: f64) -> Evaluation;

    /// What a model that ignores its inputs reaches, if that is known.
    fn baseline(&self) -> Option<Baseline> {
        None
    }
}

/// Measures by a function of w: on how many public samples, and what it finds.
pub struct MeasuredBy<F>(pub u64, pub F);

impl<F: FnMut(&[f32]) -> Evaluation + Send> Evaluate for MeasuredBy<F> {
    fn samples(&self) -> u64 {
        self.0
    }

    fn evaluate(&mut self, weights: &[f32], _clip: f64) -> Evaluation {
        (self.1)(weights)
    }
}

/// A network of the engine on a test set.
pub struct TestSet {
    /// The network.
    pub network: Arc<Network>,
    /// The samples.
    pub test: Arc<Dataset>,
    /// s, for the share of groups that would be clipped.
    pub group_size: u64,
    /// Threads.
    pub threads: usize,
}

impl Evaluate for TestSet {
    fn samples(&self) -> u64 {
        self.test.len() as u64
    }

    fn evaluate(&mut self, weights: &[f32], clip: f64) -> Evaluation {
        evaluate(&self.network, &self.test, weights, self.group_size, clip, self.threads)
    }

    fn baseline(&self) -> Option<Baseline> {
        baseline(&self.test, self.network.spec().loss)
    }
}

/// What the best constant prediction reaches on samples: the share of the most common class, and its loss,
/// weighted like that of the model. For the cross entropy that is the entropy of the labels, for the squared
/// loss their variance, for the absolute loss their mean distance from the median. It is left out where the
/// absolute, Huber or hinge loss has classes to learn.
pub fn baseline(test: &Dataset, loss: Loss) -> Option<Baseline> {
    let Some(classes) = test.classes() else {
        let values: Vec<f64> = (0..test.len()).filter_map(|i| test.value(i)).map(f64::from).collect();
        return Some(Baseline { accuracy: None, loss: Some(constant_loss(&values, loss)) });
    };
    let (mut counts, mut weights) = (vec![0u64; classes], vec![0.0; classes]);
    for (i, label) in (0..test.len()).filter_map(|i| Some((i, test.label(i)? as usize))) {
        counts[label] += 1;
        weights[label] += f64::from(test.weight(i));
    }
    let all: f64 = weights.iter().sum();
    let shares = weights.iter().map(|weight| weight / all);
    let constant = match loss {
        Loss::Squared => Some(shares.map(|share| share * (1.0 - share)).sum::<f64>() / classes as f64),
        Loss::SoftmaxCrossEntropy | Loss::Logistic => {
            Some(shares.filter(|share| *share > 0.0).map(|share| -share * share.ln()).sum())
        }
        _ => None,
    };
    let most = counts.iter().max().map(|&most| most as f64 / test.len() as f64);
    Some(Baseline { accuracy: most, loss: constant })
}

/// The smallest mean loss of one number that stands for all values.
fn constant_loss(values: &[f64], loss: Loss) -> f64 {
    let mean =
        |of: &dyn Fn(f64) -> f64| values.iter().map(|value| of(*value)).sum::<f64>() / values.len() as f64;
    match loss {
        Loss::Absolute => {
            let mut sorted = values.to_vec();
            sorted.sort_by(f64::total_cmp);
            let median = sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
            mean(&|value| (value - median).abs())
        }
        Loss::Huber { delta } => {
            let delta = f64::from(delta);
            // Its derivative rises with the number: halve the interval until it is a point.
            let fold = |fold: fn(f64, f64) -> f64, start| values.iter().copied().fold(start, fold);
            let (mut low, mut high) = (fold(f64::min, f64::INFINITY), fold(f64::max, f64::NEG_INFINITY));
            for _ in 0..60 {
                let middle = 0.5 * (low + high);
                match mean(&|value| (middle - value).clamp(-delta, delta)) > 0.0 {
                    true => high = middle,
                    false => low = middle,
                }
            }
            mean(&|value| match (value - low).abs() {
                near if near <= delta => 0.5 * near * near,
                far => delta * (far - 0.5 * delta),
            })
        }
        _ => {
            let centre = mean(&|value| value);
            mean(&|value| (value - centre).powi(2))
        }
    }
}

/// The samples for which a gradient is taken: enough for two digits, and a small part of an epoch.
const GRADIENTS: usize = 1000;

/// Samples a thread takes at a time; fixed, so that sums do not depend on the number of threads.
const PORTION: usize = 500;

/// Evaluates on all samples of `test`; the clipping fraction on the first thousand.
pub fn evaluate(
    network: &Arc<Network>,
    test: &Arc<Dataset>,
    weights: &[f32],
    group_size: u64,
    clip: f64,
    threads: usize,
) -> Evaluation {
    let all: Vec<u32> = (0..test.len() as u32).collect();
    let size = usize::try_from(group_size).unwrap_or(usize::MAX).min(test.len());
    let portion = PORTION.next_multiple_of(size);
    let portions: Vec<&[u32]> = all.chunks(portion).collect();
    let share = portions.len().div_ceil(threads.clamp(1, portions.len()));
    let mut found: Vec<Part> = Vec::new();
    thread::scope(|scope| {
        let mut handles = Vec::new();
        for (i, mine) in portions.chunks(share).enumerate() {
            handles.push(scope.spawn(move || {
                let samples = Arc::new(Labelled(Arc::clone(test)));
                let mut worker = GradientWorker::new(Arc::clone(network), samples, size, Level::best());
                worker.weights_mut().copy_from_slice(weights);
                let mut sum = vec![0.0; weights.len()];
                let each = mine.iter().enumerate().map(|(k, part)| {
                    let with_gradients = (i * share + k) * portion < GRADIENTS;
                    let mut seen =
                        Part::of(&mut worker, part, size, with_gradients.then_some(clip), &mut sum);
                    if test.classes() == Some(2) {
                        seen.probabilities = positive(&mut worker, part);
                    }
                    seen
                });
                each.collect::<Vec<_>>()
            }));
        }
        for handle in handles {
            found.extend(handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
    });
    let count = test.len() as f64;
    let groups: usize = found.iter().map(|part| part.groups).sum();
    let long: usize = found.iter().map(|part| part.long).sum();
    let right: usize = found.iter().map(|part| part.right).sum();
    let weights: f64 = (0..test.len()).map(|i| f64::from(test.weight(i))).sum();
    let two_classes = (test.classes() == Some(2)).then(|| {
        let probabilities = found.iter().flat_map(|part| &part.probabilities).copied();
        let labels = (0..test.len()).map(|i| test.label(i) == Some(1));
        TwoClasses::of(probabilities.zip(labels).collect())
    });
    Evaluation {
        loss: found.iter().map(|part| part.loss).sum::<f64>() / weights,
        accuracy: test.classes().map(|_| right as f64 / count),
        clipped: long as f64 / groups.max(1) as f64,
        two_classes: two_classes.flatten(),
    }
}

/// What was seen on a part of the samples.
struct Part {
    loss: f64,
    right: usize,
    groups: usize,
    /// Groups whose gradient is longer than C.
    long: usize,
    /// Of class 1, where there are two classes.
    probabilities: Vec<f32>,
}

impl Part {
    fn of(
        worker: &mut GradientWorker,
        part: &[u32],
        size: usize,
        clip: Option<f64>,
        sum: &mut [f32],
    ) -> Self {
        let seen = worker.evaluate(part);
        let (mut groups, mut long) = (0, 0);
        if let Some(clip) = clip {
            let whole = part.len() / size * size;
            let mut scale = |norm: f32| {
                groups += 1;
                // A norm that is not a number cannot be clipped to C and counts as long.
                long += usize::from(f64::from(norm) > clip || norm.is_nan());
                0.0
            };
            worker.add_scaled(&part[..whole], size, &mut scale, sum);
        }
        Self { loss: seen.loss, right: seen.right, groups, long, probabilities: Vec::new() }
    }
}

/// The probability of class 1 of each sample.
fn positive(worker: &mut GradientWorker, part: &[u32]) -> Vec<f32> {
    let network = Arc::clone(worker.network());
    let mut scores = worker.scores(part);
    let each = scores.chunks_mut(network.outputs()).map(|row| {
        network.probabilities(row);
        // One output is the probability itself, two are those of both classes.
        row.get(1).copied().unwrap_or(row[0])
    });
    each.collect()
}
