//! Samples as bytes: what tells one data set from another, and whether two sets share samples.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use crate::dataset::{Dataset, Inputs, Targets};

impl Dataset {
    /// Hands every sample to `visit` as bytes: its input as it is stored, then its target.
    pub fn each_row(&self, mut visit: impl FnMut(&[u8])) {
        let mut row = Vec::new();
        for i in 0..self.len() {
            row.clear();
            let place = i * self.input_len()..(i + 1) * self.input_len();
            match self.inputs() {
                Inputs::Bytes(values) => row.extend(&values[place]),
                Inputs::Floats(values) => row.extend(values[place].iter().flat_map(|x| x.to_le_bytes())),
                Inputs::Halves(values) => row.extend(values[place].iter().flat_map(|x| x.0.to_le_bytes())),
            }
            match self.targets() {
                Targets::Classes { labels, .. } => row.extend(labels[i].to_le_bytes()),
                Targets::Values(values) => row.extend(values[i].to_le_bytes()),
            }
            visit(&row);
        }
    }
}

/// How far a test set repeats the samples of a training set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repeated {
    /// Test samples that also occur in the training set, input and target alike.
    pub samples: usize,
    /// Their share of the test set.
    pub share: f64,
    /// The share of training samples that occur more than once among themselves: about as many test samples
    /// would occur there by chance, if they were other people of the same population.
    pub by_chance: f64,
}

impl Repeated {
    /// The share that chance does not explain; 0 at least.
    pub fn unexplained(&self) -> f64 {
        (self.share - self.by_chance).max(0.0)
    }
}

/// Counts the test samples that occur in the training set, whatever their order.
///
/// Rows are compared by 64-bit hashes under a random key: two different rows are taken for the same with
/// probability 2⁻⁶⁴.
pub fn repeated(train: &Dataset, test: &Dataset) -> Repeated {
    let state = RandomState::new();
    let mut known: HashMap<u64, usize> = HashMap::with_capacity(train.len());
    train.each_row(|row| *known.entry(state.hash_one(row)).or_default() += 1);
    let mut samples = 0;
    test.each_row(|row| samples += usize::from(known.contains_key(&state.hash_one(row))));
    let twice: usize = known.values().filter(|&&count| count > 1).sum();
    Repeated {
        samples,
        share: samples as f64 / test.len() as f64,
        by_chance: twice as f64 / train.len() as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(rows: impl Iterator<Item = u32>) -> Dataset {
        let rows: Vec<u32> = rows.collect();
        let inputs = rows.iter().flat_map(|&row| [row as f32, 1.0]).collect();
        let labels = rows.iter().map(|row| row % 2).collect();
        Dataset::new(Inputs::Floats(inputs), Targets::Classes { labels, classes: 2 }, [1, 1, 2]).unwrap()
    }

    #[test]
    fn order_and_one_more_row_do_not_hide_a_copy() {
        let train = set(0..100);
        let rotated = repeated(&train, &set((50..100).chain(0..50)));
        assert_eq!((rotated.samples, rotated.unexplained()), (100, 1.0));
        assert_eq!(repeated(&train, &set((0..100).chain(500..501))).samples, 100);
        assert_eq!(repeated(&train, &set(200..300)), Repeated { samples: 0, share: 0.0, by_chance: 0.0 });
    }

    /// A table with few different rows repeats them everywhere, and that is not a copy.
    #[test]
    fn rows_that_repeat_themselves_are_no_copy() {
        let few = repeated(&set((0..1000).map(|i| i % 8)), &set((0..100).map(|i| i % 8)));
        assert_eq!((few.share, few.unexplained()), (1.0, 0.0));
    }
}
