//! How a model does on private samples: counted once, with noise.

use std::sync::Arc;

use dpsgd_data::Labelled;
use dpsgd_engine::GradientWorker;
use dpsgd_kernels::Level;
use dpsgd_report::run::PrivateMeasurement;

use super::TestSet;
use crate::Error;

/// The log-odds between which predictions of two classes are counted: ±5.5 and every half between. 0 is one
/// of them, so that the accuracy is exact but for the noise.
const EDGES: [f32; 23] = [
    -5.5, -5.0, -4.5, -4.0, -3.5, -3.0, -2.5, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5,
    4.0, 4.5, 5.0, 5.5,
];
/// The intervals of [`EDGES`].
const BINS: usize = EDGES.len() + 1;
/// The first one of predictions of class 1.
const POSITIVE: usize = BINS / 2;

/// Counts are kept in these parts, so that the noise can be added in whole numbers.
const STEPS: f64 = (1_u64 << 20) as f64;

/// A network of the engine on a private test set.
///
/// # Guarantee
/// The test set is counted into cells: for two classes by class and log-odds of the prediction, for others by
/// right and wrong. Replacing one sample moves it from one cell to another: two counts change by 1 each, so
/// **Δ = √2**, attained. For a value to predict, the squared errors, each at most 1, are summed in steps of
/// 2⁻²⁰: **Δ = 1**, attained. N(0, (Δ/µ)²) is added to each number, which makes G_µ, and G_{gµ} for g
/// differing samples, a chain of g neighbours. Everything else is post-processing. The size of the test set is
/// public, as it is for neighbours by substitution.
///
/// The noise is a Gaussian rounded to the steps and added in whole numbers: no bit below it depends on the
/// data. The caller must see to it that its source is exact and secret, and that it is asked only once.
pub struct PrivateTest {
    /// The network and the samples.
    pub test: TestSet,
    /// µ for one differing sample.
    pub mu: f64,
}

impl PrivateTest {
    /// Measures the weights. `noise` is the source of independent Gaussians with a given deviation, rounded to
    /// whole numbers. A source that has none for so large a deviation is refused: nothing is released then.
    pub fn release(
        &self,
        weights: &[f32],
        noise: &mut dyn FnMut(f64) -> f64,
    ) -> Result<PrivateMeasurement, Error> {
        let (counts, sensitivity) = self.counts(weights);
        let deviation = sensitivity / self.mu;
        let mut noised = Vec::with_capacity(counts.len());
        for count in counts {
            let value = noise(deviation * STEPS);
            // A normal value beyond 100 does not occur in the lifetime of the universe; NaN, as a whole number,
            // would be no noise at all.
            if !(value.abs() <= 100.0 * deviation * STEPS && value.fract() == 0.0) {
                let mu = self.mu;
                return Err(Error::Refused(format!(
                    "test-mu = {mu}: there is no noise of that size ({value})"
                )));
            }
            // |count| ≤ N·2²⁰ and the noise fit an i128 by far.
            noised.push((count + value as i128) as f64 / STEPS);
        }
        let samples = self.test.test.len();
        let mut found = PrivateMeasurement {
            mu: self.mu,
            samples: samples as u64,
            accuracy: None,
            accuracy_noise: None,
            squared_error: None,
            squared_error_noise: None,
            auc: None,
            average_precision: None,
            positives: None,
        };
        let count = samples as f64;
        match self.test.test.classes() {
            Some(2) => two_classes(&noised, deviation, &mut found),
            Some(_) => {
                found.accuracy = Some((noised[0] / count).clamp(0.0, 1.0));
                found.accuracy_noise = Some(deviation / count);
            }
            None => {
                found.squared_error = Some((noised[0] / count).max(0.0));
                found.squared_error_noise = Some(deviation / count);
            }
        }
        Ok(found)
    }

    /// The cells, or the sum of squared errors, in steps; and how far one sample can move them.
    fn counts(&self, weights: &[f32]) -> (Vec<i128>, f64) {
        let TestSet { network, test, .. } = &self.test;
        let samples = Arc::new(Labelled(Arc::clone(test)));
        let mut worker = GradientWorker::new(Arc::clone(network), samples, 1, Level::best());
        worker.weights_mut().copy_from_slice(weights);
        let all: Vec<u32> = (0..test.len() as u32).collect();
        let scores = worker.scores(&all);
        let rows = scores.chunks(network.outputs()).enumerate();
        let one = STEPS as i128;
        match test.classes() {
            Some(2) => {
                let mut cells = vec![0; 2 * BINS];
                for (i, row) in rows {
                    let class = test.label(i).unwrap_or(0) as usize;
                    cells[class * BINS + bin(row)] += one;
                }
                (cells, 2.0_f64.sqrt())
            }
            Some(_) => {
                let mut cells = vec![0; 2];
                for (i, row) in rows {
                    let right = network.predicted_class(row) == test.label(i);
                    cells[usize::from(!right)] += one;
                }
                (cells, 2.0_f64.sqrt())
            }
            None => {
                let error = |(i, row): (usize, &[f32])| {
                    let difference = f64::from(row[0]) - f64::from(test.value(i).unwrap_or(0.0));
                    // A prediction that is not a number counts as an error of 1.
                    (difference * difference).min(1.0)
                };
                (vec![rows.map(error).map(|error| (error * STEPS).round() as i128).sum()], 1.0)
            }
        }
    }
}

/// The interval of the log-odds of class 1; one that is not a number counts as the lowest.
fn bin(row: &[f32]) -> usize {
    let odds = if row.len() == 1 { row[0] } else { row[1] - row[0] };
    // A prediction of class 1 is one with odds strictly above 0, as in `Network::predicted_class`.
    EDGES.iter().filter(|edge| odds > **edge).count()
}

/// What the noised counts of two classes say.
fn two_classes(cells: &[f64], deviation: f64, found: &mut PrivateMeasurement) {
    let count = found.samples as f64;
    let right: f64 = cells[..POSITIVE].iter().chain(&cells[BINS + POSITIVE..]).sum();
    found.accuracy = Some((right / count).clamp(0.0, 1.0));
    found.accuracy_noise = Some(deviation * (BINS as f64).sqrt() / count);
    // Noised counts may be negative: lifting those to 0 would add phantom samples where there are none.
    let (negatives, positives) = cells.split_at(BINS);
    let (all_negatives, all_positives): (f64, f64) = (negatives.iter().sum(), positives.iter().sum());
    found.positives = Some(all_positives.max(0.0));
    // Areas of classes that the noise hides would mean nothing.
    let hidden = deviation * (BINS as f64).sqrt();
    if all_negatives < hidden || all_positives < hidden {
        return;
    }
    let (mut area, mut precision, mut taken, mut hits) = (0.0, 0.0, 0.0, 0.0);
    for (negative, positive) in negatives.iter().zip(positives).rev() {
        area += negative * (hits + 0.5 * positive);
        taken += negative + positive;
        hits += positive;
        if taken >= 1.0 {
            precision += positive / all_positives * (hits / taken).clamp(0.0, 1.0);
        }
    }
    found.auc = Some((area / (all_negatives * all_positives)).clamp(0.0, 1.0));
    found.average_precision = Some(precision.clamp(0.0, 1.0));
}

#[cfg(test)]
mod tests {
    use dpsgd_data::{Dataset, Inputs, Targets};
    use dpsgd_engine::{Network, zoo};

    use super::*;

    /// A logistic regression of one input on the given samples.
    fn private(inputs: &[f32], targets: Targets, outputs: usize) -> PrivateTest {
        let test = Dataset::new(Inputs::Floats(inputs.to_vec()), targets, [1, 1, 1]).unwrap();
        let mut spec = zoo::logistic([1, 1, 1], outputs);
        if test.classes().is_none() {
            spec.loss = dpsgd_engine::spec::Loss::Squared;
        }
        let network = Arc::new(Network::new(&spec).unwrap());
        PrivateTest { test: TestSet { network, test: Arc::new(test), group_size: 1, threads: 1 }, mu: 0.5 }
    }

    fn classes(labels: &[u32], classes: usize) -> Targets {
        Targets::Classes { labels: labels.to_vec(), classes }
    }

    fn distance(one: &[i128], other: &[i128]) -> f64 {
        one.iter().zip(other).map(|(a, b)| ((a - b) as f64 / STEPS).powi(2)).sum::<f64>().sqrt()
    }

    /// Every neighbour of a small test set, by brute force: none is further away than Δ, and one is that far.
    #[test]
    fn the_sensitivity_is_the_largest_over_all_neighbours_and_is_attained() {
        let inputs: Vec<f32> = (-8..=8).map(|i| i as f32).collect();
        for kinds in [2_u32, 3, 0] {
            let outputs = kinds.max(1) as usize;
            // A value is predicted as half of its input, which is right for some of them.
            let weights: &[f32] = match kinds {
                0 => &[0.5, 0.0],
                _ => &[0.9, -0.7, 0.4, 0.1, 0.3, -0.2][..2 * outputs],
            };
            let mut found: Vec<(Vec<i128>, f64)> = Vec::new();
            for &input in &inputs {
                for target in 0..kinds.max(3) {
                    if kinds > 0 && target >= kinds {
                        continue;
                    }
                    // The last sample is the one that differs.
                    let targets = match kinds {
                        0 => Targets::Values(vec![0.3, 0.5 * target as f32]),
                        _ => classes(&[0, target], kinds as usize),
                    };
                    found.push(private(&[0.5, input], targets, outputs).counts(weights));
                }
            }
            let bound = found[0].1;
            let largest = found
                .iter()
                .flat_map(|one| found.iter().map(|other| distance(&one.0, &other.0)))
                .fold(0.0, f64::max);
            assert!(largest <= bound && largest > 0.999 * bound, "{kinds}: {largest} {bound}");
        }
    }

    #[test]
    fn without_noise_it_is_what_a_public_test_set_shows() {
        let inputs: Vec<f32> = (0..400).map(|i| ((i * 37) % 101) as f32 / 20.0 - 2.5).collect();
        let labels: Vec<u32> = (0..400).map(|i| u32::from((i * 37) % 101 > 40 + (i % 30))).collect();
        let private = private(&inputs, classes(&labels, 2), 2);
        let weights = [-1.0, 1.0, 0.1, -0.1];
        let found = private.release(&weights, &mut |_| 0.0).unwrap();
        let mut public = TestSet {
            network: Arc::clone(&private.test.network),
            test: Arc::clone(&private.test.test),
            group_size: 1,
            threads: 1,
        };
        let seen = super::super::Evaluate::evaluate(&mut public, &weights, 1.0);
        assert_eq!(found.accuracy, seen.accuracy);
        let two = seen.two_classes.unwrap();
        // Predictions in one interval count as ties.
        assert!((found.auc.unwrap() - two.auc).abs() < 0.02, "{found:?} {two:?}");
        assert_eq!(found.positives, Some(labels.iter().sum::<u32>().into()));
    }

    /// One draw for each number, with the deviation Δ/µ in steps.
    #[test]
    fn every_number_gets_its_own_noise() {
        let private = private(&[0.5, -0.5], classes(&[0, 1], 2), 2);
        let mut drawn = Vec::new();
        let released = private.release(&[0.0; 4], &mut |deviation| {
            drawn.push(deviation);
            0.0
        });
        assert!(released.is_ok());
        assert_eq!(drawn, vec![2.0_f64.sqrt() / 0.5 * STEPS; 2 * BINS]);
    }

    /// A µ that asks for more noise than can be drawn must not end in none.
    #[test]
    fn a_tiny_mu_is_no_way_around_the_noise() {
        let randomness = dpsgd_train::Randomness::from_seed(1, 0);
        for mu in [1e-6, 1e-9, 1e-300] {
            let private = PrivateTest { mu, ..private(&[0.5, -0.5], classes(&[0, 1], 2), 2) };
            let mut drawn = 0;
            let found = private.release(&[0.0; 4], &mut |deviation| {
                drawn += 1;
                dpsgd_train::noise::exact::before_training(&randomness, drawn, deviation)
            });
            assert!(found.is_err(), "{mu}: {found:?}");
        }
    }
}
