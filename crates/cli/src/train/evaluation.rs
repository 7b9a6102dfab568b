//! How a model does on the public test set.

use std::thread;

use dpsgd_data::Dataset;
use dpsgd_engine::kernel::Level;
use dpsgd_engine::{Network, Worker};

use super::samples::Labelled;

/// What is measured on the test set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// The mean loss.
    pub loss: f64,
    /// The share of samples that are predicted correctly; none for regression.
    pub accuracy: Option<f64>,
    /// The share of groups of test samples whose gradient is longer than C.
    pub clipped: f64,
}

/// The samples for which a gradient is taken: enough for two digits, and a small part of an epoch.
const GRADIENTS: usize = 1000;

/// Samples a thread takes at a time; fixed, so that sums do not depend on the number of threads.
const PORTION: usize = 500;

/// Evaluates on all samples of `test`; the clipping fraction on the first thousand.
pub fn evaluate(
    network: &Network,
    test: &Dataset,
    weights: &[f32],
    group_size: u64,
    clip: f64,
    threads: usize,
) -> Evaluation {
    let samples = Labelled(test);
    let all: Vec<u32> = (0..test.len() as u32).collect();
    let size = usize::try_from(group_size).unwrap_or(usize::MAX).min(test.len());
    let portion = PORTION.next_multiple_of(size);
    let portions: Vec<&[u32]> = all.chunks(portion).collect();
    let share = portions.len().div_ceil(threads.clamp(1, portions.len()));
    let mut found: Vec<(f64, usize, usize, usize)> = Vec::new();
    thread::scope(|scope| {
        let mut handles = Vec::new();
        for (i, mine) in portions.chunks(share).enumerate() {
            let samples = &samples;
            handles.push(scope.spawn(move || {
                let mut worker = Worker::new(network, samples, size, Level::best());
                worker.weights_mut().copy_from_slice(weights);
                let mut sum = vec![0.0; weights.len()];
                let evaluate = |(k, part): (usize, &&[u32])| {
                    let seen = worker.evaluate(part);
                    let (mut groups, mut long) = (0, 0);
                    if (i * share + k) * portion < GRADIENTS {
                        let whole = part.len() / size * size;
                        worker.add_scaled(
                            &part[..whole],
                            size,
                            &mut |norm| {
                                groups += 1;
                                // A norm that is no number is never clipped to, and counts as long.
                                long += usize::from(f64::from(norm) > clip || norm.is_nan());
                                0.0
                            },
                            &mut sum,
                        );
                    }
                    (seen.loss, seen.right, groups, long)
                };
                mine.iter().enumerate().map(evaluate).collect::<Vec<_>>()
            }));
        }
        for handle in handles {
            found.extend(handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
    });
    let count = test.len() as f64;
    let groups: usize = found.iter().map(|part| part.2).sum();
    let long: usize = found.iter().map(|part| part.3).sum();
    Evaluation {
        loss: found.iter().map(|part| part.0).sum::<f64>() / count,
        accuracy: test.classes().map(|_| found.iter().map(|part| part.1).sum::<usize>() as f64 / count),
        clipped: long as f64 / groups.max(1) as f64,
    }
}
