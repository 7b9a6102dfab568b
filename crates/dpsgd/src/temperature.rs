//! A temperature, by which a model's scores are divided: the order of the classes stays, and probabilities
//! come to say how often they are right.

use std::path::Path;

use dpsgd_engine::spec::Loss;

use crate::predict::labelled;
use crate::{Error, SavedRun};

/// The fitted temperature lies between 1/64 and 64: a model without a single mistake would have none.
const MOST: f64 = 64.0;

impl SavedRun {
    /// The temperature at which the cross entropy of the model on labelled **public** samples is least: those
    /// of a file, or the public test set of the run.
    ///
    /// # Guarantee
    /// A function of the released model and of those samples alone. It costs no privacy of the training data,
    /// and it protects nothing of the samples it is fitted on.
    pub fn temperature(&self, public: Option<&Path>, threads: usize) -> Result<f64, Error> {
        let samples = labelled(&self.settings()?, public)?;
        let labels: Vec<u32> = (0..samples.len()).filter_map(|i| samples.label(i)).collect();
        let (network, scores) = self.scores(samples, threads)?;
        match network.spec().loss {
            Loss::SoftmaxCrossEntropy | Loss::Logistic => Ok(fitted(&scores, network.outputs(), &labels)),
            _ => Err(Error::Refused(
                "temperature: only with a softmax or logistic loss, whose outputs are probabilities".into(),
            )),
        }
    }
}

/// The best temperature of scores, `outputs` a sample; one output is that of class 1 of two.
fn fitted(scores: &[f32], outputs: usize, labels: &[u32]) -> f64 {
    // The cross entropy is convex in β = 1/temperature, so its slope changes its sign once.
    let slope = |beta: f64| -> f64 {
        let rows = scores.chunks_exact(outputs).zip(labels);
        rows.map(|(row, &label)| slope_of_one(row, label as usize, beta)).sum()
    };
    let (mut low, mut high) = (-MOST.ln(), MOST.ln());
    for _ in 0..50 {
        let middle = 0.5 * (low + high);
        match slope(middle.exp()) > 0.0 {
            true => high = middle,
            false => low = middle,
        }
    }
    (-low).exp()
}

/// The derivative by β of the cross entropy of β·scores: the mean score under the probabilities, less that of
/// the class.
fn slope_of_one(row: &[f32], label: usize, beta: f64) -> f64 {
    if let [one] = row {
        let score = f64::from(*one);
        return score / (1.0 + (-beta * score).exp()) - if label == 1 { score } else { 0.0 };
    }
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let (mut sum, mut weighted) = (0.0, 0.0);
    for &score in row {
        // Scores relative to the largest: no exponential overflows.
        let score = f64::from(score - most);
        let weight = (beta * score).exp();
        sum += weight;
        weighted += weight * score;
    }
    weighted / sum - f64::from(row[label] - most)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean cross entropy by its definition.
    fn loss(scores: &[f32], outputs: usize, labels: &[u32], temperature: f64) -> f64 {
        let each = scores.chunks_exact(outputs).zip(labels).map(|(row, &label)| {
            let scores: Vec<f64> = match row {
                [one] => vec![0.0, f64::from(*one)],
                _ => row.iter().copied().map(f64::from).collect(),
            };
            let sum: f64 = scores.iter().map(|score| (score / temperature).exp()).sum();
            sum.ln() - scores[label as usize] / temperature
        });
        each.sum::<f64>() / labels.len() as f64
    }

    /// Mostly the class with the largest score, every fourth time another one.
    fn mostly_right(scores: &[f32], outputs: usize) -> Vec<u32> {
        let classes = outputs.max(2) as u32;
        let each = scores.chunks_exact(outputs).enumerate().map(|(i, row)| {
            let best = match row {
                [one] => u32::from(*one > 0.0),
                _ => (0..outputs).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap() as u32,
            };
            if i % 4 == 0 { (best + 1) % classes } else { best }
        });
        each.collect()
    }

    fn scores(count: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * i * 31 + 7 * i) % 97) as f32 / 20.0 - 2.0).collect()
    }

    #[test]
    fn no_other_temperature_has_a_smaller_loss() {
        for outputs in [1, 2, 5] {
            let scores = scores(60 * outputs);
            let labels = mostly_right(&scores, outputs);
            let best = fitted(&scores, outputs, &labels);
            assert!(best > 1.0 / 60.0 && best < 60.0, "{outputs} outputs: {best}");
            let least = loss(&scores, outputs, &labels, best);
            for i in -400..=400 {
                let other = (0.01 * f64::from(i)).exp();
                assert!(
                    least <= loss(&scores, outputs, &labels, other) + 1e-12,
                    "{outputs}: {best}, {other}"
                );
            }
        }
    }

    #[test]
    fn scores_twice_as_large_have_twice_the_temperature() {
        let scores = scores(180);
        let labels = mostly_right(&scores, 3);
        let doubled: Vec<f32> = scores.iter().map(|score| 2.0 * score).collect();
        let (one, two) = (fitted(&scores, 3, &labels), fitted(&doubled, 3, &labels));
        assert!((two / one - 2.0).abs() < 1e-6, "{one} {two}");
    }

    /// A model without a mistake would want 0, one that is always wrong infinity.
    #[test]
    fn the_temperature_has_limits() {
        let scores = [3.0, 0.0, 0.0, 5.0];
        assert!((fitted(&scores, 2, &[0, 1]) * MOST - 1.0).abs() < 1e-6);
        assert!((fitted(&scores, 2, &[1, 0]) / MOST - 1.0).abs() < 1e-6);
    }
}
