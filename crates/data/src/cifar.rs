//! CIFAR-10's binary version: each record is a label and 3072 bytes, the red, green and blue planes.

use std::path::Path;

use crate::dataset::{Dataset, Inputs, Targets};
use crate::error::DataError;

/// The files with the training samples, and the one for testing.
pub(crate) const TRAIN: [&str; 5] =
    ["data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"];
pub(crate) const TEST: &str = "test_batch.bin";

const SIDE: usize = 32;
const CHANNELS: usize = 3;
const PIXELS: usize = SIDE * SIDE;
const RECORD: usize = 1 + CHANNELS * PIXELS;
const CLASSES: usize = 10;

/// The samples of consecutive batches, stored with the channel last.
#[derive(Default)]
pub struct Batches {
    labels: Vec<u32>,
    values: Vec<u8>,
}

impl Batches {
    /// Adds the records of the file at `path`, which is named in errors.
    pub fn add(&mut self, path: &Path, bytes: &[u8]) -> Result<(), DataError> {
        let records = bytes.chunks_exact(RECORD);
        if bytes.is_empty() || !records.remainder().is_empty() {
            return Err(DataError::Truncated {
                path: path.to_path_buf(),
                found: bytes.len() as u64,
                expected: (bytes.len() as u128 / RECORD as u128 + 1) * RECORD as u128,
            });
        }
        self.values.reserve(records.len() * CHANNELS * PIXELS);
        for (number, record) in records.enumerate() {
            let (label, planes) = (record[0], &record[1..]);
            if usize::from(label) >= CLASSES {
                return Err(DataError::Content {
                    path: path.to_path_buf(),
                    why: format!("record {number} has the label {label}, but CIFAR-10 has {CLASSES} classes"),
                });
            }
            self.labels.push(u32::from(label));
            for pixel in 0..PIXELS {
                self.values.extend((0..CHANNELS).map(|channel| planes[channel * PIXELS + pixel]));
            }
        }
        Ok(())
    }

    /// Everything added so far, as a data set.
    pub fn dataset(self) -> Result<Dataset, DataError> {
        let targets = Targets::Classes { labels: self.labels, classes: CLASSES };
        Dataset::new(Inputs::Bytes(self.values), targets, [SIDE, SIDE, CHANNELS])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(label: u8, value: impl Fn(usize, usize) -> u8) -> Vec<u8> {
        let planes = (0..CHANNELS).flat_map(|c| (0..PIXELS).map(move |p| (c, p)));
        std::iter::once(label).chain(planes.map(|(c, p)| value(c, p))).collect()
    }

    #[test]
    fn planes_become_channels_of_a_pixel() {
        let value = |channel: usize, pixel: usize| (channel * 83 + pixel * 7) as u8;
        let mut batches = Batches::default();
        batches.add(Path::new("a"), &record(3, |_, _| 0)).unwrap();
        batches.add(Path::new("b"), &[record(9, value), record(0, |_, _| 255)].concat()).unwrap();
        let set = batches.dataset().unwrap();
        assert_eq!((set.len(), set.shape(), set.classes()), (3, [32, 32, 3], Some(10)));
        assert_eq!([0, 1, 2].map(|index| set.label(index)), [Some(3), Some(9), Some(0)]);
        let mut input = vec![0.0; set.input_len()];
        set.copy_input(1, &mut input);
        for (row, column, channel) in [(0, 0, 0), (0, 1, 2), (17, 5, 1), (31, 31, 2)] {
            let expected = f32::from(value(channel, row * 32 + column)) / 255.0;
            let served = input[(row * 32 + column) * 3 + channel];
            assert!((served - expected).abs() < 1e-6, "{row} {column} {channel}");
        }
    }

    #[test]
    fn short_records_and_wrong_labels_are_refused() {
        let add = |bytes: &[u8]| Batches::default().add(Path::new("x.bin"), bytes).unwrap_err().to_string();
        assert_eq!(add(&[]), "x.bin: truncated, 0 bytes of 3073");
        assert_eq!(add(&[0; 3074]), "x.bin: truncated, 3074 bytes of 6146");
        assert!(add(&record(10, |_, _| 0)).contains("record 0 has the label 10"));
    }
}
