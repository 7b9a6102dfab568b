//! How well a model tells two classes apart, beyond its accuracy.

use serde::{Deserialize, Serialize};

/// The groups of a calibration table.
const TENTHS: usize = 10;

/// What is measured where there are two classes; class 1 counts as positive.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TwoClasses {
    /// The area under the ROC curve: how often a random positive sample gets a higher probability than a
    /// random negative one, ties counting half. A constant has ½.
    pub auc: f64,
    /// The mean precision over the positives, from the most probable down. A constant has the share of
    /// positives.
    pub average_precision: f64,
    /// How often each class was predicted, with the threshold ½.
    pub confusion: Confusion,
    /// The samples by rising probability, in ten groups of equal size.
    pub calibration: [Tenth; TENTHS],
}

/// True and predicted classes.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Confusion {
    /// Class 0, predicted as 0.
    pub true_negatives: u64,
    /// Class 0, predicted as 1.
    pub false_positives: u64,
    /// Class 1, predicted as 0.
    pub false_negatives: u64,
    /// Class 1, predicted as 1.
    pub true_positives: u64,
}

/// A tenth of the samples, by rising probability.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Tenth {
    /// How many there are.
    pub samples: u64,
    /// The mean predicted probability of class 1.
    pub predicted: f64,
    /// The share that is of class 1.
    pub observed: f64,
}

impl TwoClasses {
    /// From the predicted probability of class 1 of each sample, and whether it is of class 1. None if one of
    /// the classes does not occur, or a probability is not a number.
    ///
    /// ```
    /// use dpsgd_report::run::TwoClasses;
    /// let seen = TwoClasses::of(vec![(0.9, true), (0.2, false), (0.6, false), (0.6, true)]).unwrap();
    /// assert_eq!(seen.auc, 0.875);
    /// assert_eq!((seen.confusion.true_positives, seen.confusion.false_positives), (2, 1));
    /// ```
    pub fn of(mut samples: Vec<(f32, bool)>) -> Option<Self> {
        let positives = samples.iter().filter(|sample| sample.1).count() as f64;
        let negatives = samples.len() as f64 - positives;
        if positives == 0.0 || negatives == 0.0 || samples.iter().any(|sample| sample.0.is_nan()) {
            return None;
        }
        samples.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut above, mut precision) = (0.0, 0.0);
        // The samples above a threshold, and the positives among them.
        let (mut taken, mut right) = (0.0, 0.0);
        for tied in samples.chunk_by(|a, b| a.0 == b.0).rev() {
            let here = tied.iter().filter(|sample| sample.1).count() as f64;
            let wrong = tied.len() as f64 - here;
            // Each negative here is below all positives so far, and level with those that are here.
            above += wrong * (right + 0.5 * here);
            taken += tied.len() as f64;
            right += here;
            precision += here / positives * (right / taken);
        }
        let mut confusion = Confusion::default();
        for &(probability, positive) in &samples {
            let count = match (positive, probability > 0.5) {
                (false, false) => &mut confusion.true_negatives,
                (false, true) => &mut confusion.false_positives,
                (true, false) => &mut confusion.false_negatives,
                (true, true) => &mut confusion.true_positives,
            };
            *count += 1;
        }
        Some(Self {
            auc: above / (positives * negatives),
            average_precision: precision,
            confusion,
            calibration: std::array::from_fn(|i| tenth(&samples, i)),
        })
    }

    /// The mean distance between predicted and observed over the tenths.
    pub fn calibration_error(&self) -> f64 {
        let all: u64 = self.calibration.iter().map(|tenth| tenth.samples).sum();
        let part = |tenth: &Tenth| tenth.samples as f64 * (tenth.predicted - tenth.observed).abs();
        self.calibration.iter().map(part).sum::<f64>() / all.max(1) as f64
    }
}

/// The i-th tenth of samples that are sorted.
fn tenth(samples: &[(f32, bool)], i: usize) -> Tenth {
    let part = &samples[samples.len() * i / TENTHS..samples.len() * (i + 1) / TENTHS];
    let count = part.len().max(1) as f64;
    Tenth {
        samples: part.len() as u64,
        predicted: part.iter().map(|sample| f64::from(sample.0)).sum::<f64>() / count,
        observed: part.iter().filter(|sample| sample.1).count() as f64 / count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every pair and every threshold, straight from the definitions.
    fn slow(samples: &[(f32, bool)]) -> (f64, f64) {
        let of = |class: bool| samples.iter().filter(move |sample| sample.1 == class);
        let (mut won, mut pairs) = (0.0, 0.0);
        for up in of(true) {
            for down in of(false) {
                pairs += 1.0;
                won += if up.0 > down.0 { 1.0 } else { 0.5 * f64::from(u8::from(up.0 == down.0)) };
            }
        }
        let positives = of(true).count() as f64;
        let at = |threshold: f32| {
            let above = samples.iter().filter(|sample| sample.0 >= threshold);
            let right = above.clone().filter(|sample| sample.1).count() as f64;
            (right / positives, right / above.count() as f64)
        };
        let precision: f64 = of(true).map(|sample| at(sample.0).1 / positives).sum();
        (won / pairs, precision)
    }

    #[test]
    fn areas_are_those_of_the_definitions() {
        let mut state = 1_u64;
        for size in [2, 3, 17, 100] {
            for levels in [2, 7, 1000] {
                let mut draw = || {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (state >> 33) % levels
                };
                let mut samples: Vec<_> =
                    (0..size).map(|_| (draw() as f32 / levels as f32, draw() % 2 == 1)).collect();
                (samples[0].1, samples[1].1) = (true, false);
                let (auc, precision) = slow(&samples);
                let found = TwoClasses::of(samples).unwrap();
                assert!((found.auc - auc).abs() < 1e-12, "{size} {levels}");
                assert!((found.average_precision - precision).abs() < 1e-12, "{size} {levels}");
            }
        }
    }

    #[test]
    fn a_constant_and_an_oracle_are_what_they_should_be() {
        let labels: Vec<bool> = (0..1000).map(|i| i % 20 == 0).collect();
        let constant = TwoClasses::of(labels.iter().map(|&label| (0.05, label)).collect()).unwrap();
        assert_eq!((constant.auc, constant.average_precision), (0.5, 0.05));
        assert_eq!(constant.confusion.false_negatives, 50);
        let oracle =
            TwoClasses::of(labels.iter().map(|&label| (f32::from(u8::from(label)), label)).collect());
        let oracle = oracle.unwrap();
        assert_eq!((oracle.auc, oracle.average_precision), (1.0, 1.0));
        assert!(oracle.calibration_error() < 1e-12);
        assert!(TwoClasses::of(vec![(0.5, true)]).is_none());
        assert!(TwoClasses::of(vec![(f32::NAN, true), (0.1, false)]).is_none());
    }
}
