//! Samples in memory, served one at a time as `f32`, channel last.

use std::ops::Range;
use std::sync::Mutex;

use crate::error::{DataError, setting};
use crate::half::Half;

/// The inputs of all samples, one after the other, each in the order height, width, channel.
#[derive(Clone, Debug, PartialEq)]
pub enum Inputs {
    /// Images as they are on disk; a byte p stands for p/255.
    Bytes(Vec<u8>),
    /// Anything else.
    Floats(Vec<f32>),
    /// Features of images: numbers of half precision, half as much to keep and to read.
    Halves(Vec<Half>),
}

impl Inputs {
    fn len(&self) -> usize {
        match self {
            Inputs::Bytes(values) => values.len(),
            Inputs::Floats(values) => values.len(),
            Inputs::Halves(values) => values.len(),
        }
    }
}

/// The targets, one per sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Targets {
    /// Classification: a label below `classes` for each sample.
    Classes {
        /// The labels.
        labels: Vec<u32>,
        /// The number of classes, a public constant.
        classes: usize,
    },
    /// Regression: a value for each sample.
    Values(Vec<f32>),
}

impl Targets {
    /// The number of samples.
    pub fn len(&self) -> usize {
        match self {
            Targets::Classes { labels, .. } => labels.len(),
            Targets::Values(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// `scale·x + shift` for each channel, laid out so that the loop over a sample vectorises.
#[derive(Clone, Debug, PartialEq)]
struct Affine {
    // The channels' constants, repeated: a sample with three channels would otherwise be a loop of
    // length three.
    scale: Vec<f32>,
    shift: Vec<f32>,
}

impl Affine {
    fn new(scale: &[f32], shift: &[f32]) -> Self {
        // 64 is a multiple of every vector width; many channels are a long loop by themselves.
        let repeats = if scale.len() <= 16 { 64 } else { 1 };
        Self { scale: scale.repeat(repeats), shift: shift.repeat(repeats) }
    }

    fn apply<T: Copy + Into<f32>>(&self, values: &[T], out: &mut [f32]) {
        let period = self.scale.len();
        for (values, out) in values.chunks(period).zip(out.chunks_mut(period)) {
            for (((out, &value), scale), shift) in
                out.iter_mut().zip(values).zip(&self.scale).zip(&self.shift)
            {
                *out = value.into() * scale + shift;
            }
        }
    }
}

/// Samples 0..N with their targets.
///
/// ```
/// use dpsgd_data::{Dataset, Inputs, Targets};
/// // Two images of 1 × 2 pixels with one channel.
/// let set = Dataset::new(
///     Inputs::Bytes(vec![0, 255, 0, 51]),
///     Targets::Classes { labels: vec![1, 0], classes: 2 },
///     [1, 2, 1],
/// )?;
/// let mut input = [0.0; 2];
/// set.copy_input(1, &mut input);
/// assert!(input[0] == 0.0 && (input[1] - 0.2).abs() < 1e-6);
/// assert_eq!(set.label(1), Some(0));
/// # Ok::<(), dpsgd_data::DataError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    inputs: Inputs,
    targets: Targets,
    shape: [usize; 3],
    numeric: Vec<bool>,
    affine: Affine,
    /// What the loss of each class is multiplied by; empty for 1.
    class_weights: Vec<f32>,
    /// The rows of a table: how they are served once they are normalised.
    table: Option<Missing>,
}

/// Which values of a table are missing.
#[derive(Clone, Debug, Default, PartialEq)]
struct Missing {
    /// For each value; empty if none is missing.
    at: Vec<bool>,
    /// Whether the values are normalised: a missing one then is the mean, 0, and none is beyond the limit.
    normalised: bool,
}

/// How far from the mean a normalised value of a table can be, in standard deviations: a few far values in a
/// long tail would otherwise fill the clipped gradient of their row.
pub const LIMIT: f32 = 5.0;

impl Dataset {
    /// Samples of the given shape (height, width, channels), checked once: as many inputs as targets,
    /// at least one sample, every label below the number of classes, every float finite.
    pub fn new(inputs: Inputs, targets: Targets, shape: [usize; 3]) -> Result<Self, DataError> {
        let shape_text = format!("{}×{}×{}", shape[0], shape[1], shape[2]);
        let Some(length) = shape[0].checked_mul(shape[1]).and_then(|area| area.checked_mul(shape[2])) else {
            return setting("shape", shape_text, "small enough for memory", "it is the size of one sample");
        };
        if length == 0 {
            return setting("shape", shape_text, "at least 1×1×1", "a sample must not be empty");
        }
        if targets.is_empty() {
            return setting("samples", 0, "at least 1", "there is nothing to learn from");
        }
        if length.checked_mul(targets.len()) != Some(inputs.len()) {
            return setting(
                "inputs",
                inputs.len(),
                format!("{} samples of {shape_text}", targets.len()),
                "each target needs exactly one input",
            );
        }
        if let Targets::Classes { labels, classes } = &targets
            && let Some(label) = labels.iter().find(|label| **label as usize >= *classes)
        {
            return setting("label", label, format!("below {classes}"), "there are that many classes");
        }
        let floats = [
            if let Inputs::Floats(values) = &inputs { values.as_slice() } else { &[] },
            if let Targets::Values(values) = &targets { values.as_slice() } else { &[] },
        ];
        if let Some(value) = floats.iter().copied().flatten().find(|value| !value.is_finite()) {
            return setting("value", value, "finite", "one infinite or undefined value spoils a gradient");
        }
        if let Inputs::Halves(values) = &inputs
            && values.iter().any(|value| !value.is_finite())
        {
            return setting("value", "inf or NaN", "finite", "one such value spoils a gradient");
        }
        let numeric = vec![true; shape[2]];
        let (mean, std) = plain(&inputs);
        let affine = affine(&inputs, &vec![mean; shape[2]], &vec![std; shape[2]]);
        Ok(Self { inputs, targets, shape, numeric, affine, class_weights: Vec::new(), table: None })
    }

    /// Marks the numeric channels; the others (one-hot) are never normalised.
    pub(crate) fn with_numeric(mut self, numeric: Vec<bool>) -> Self {
        debug_assert_eq!(numeric.len(), self.shape[2]);
        self.numeric = numeric;
        self
    }

    /// Makes the samples rows of a table; `missing` marks the values that are not there, and is empty if all
    /// are.
    pub(crate) fn with_missing(mut self, missing: Vec<bool>) -> Self {
        debug_assert!(missing.is_empty() || missing.len() == self.inputs.len());
        self.table = Some(Missing { at: missing, normalised: false });
        self
    }

    /// Whether the samples are rows of a table, in which values can be missing.
    pub fn is_table(&self) -> bool {
        self.table.is_some()
    }

    /// Whether the value of a sample in a channel is missing.
    pub(crate) fn is_missing(&self, index: usize, channel: usize) -> bool {
        let at = index * self.input_len() + channel;
        self.table.as_ref().is_some_and(|table| table.at.get(at).copied().unwrap_or(false))
    }

    /// Multiplies the loss of every sample by the weight of its class, divided by the largest weight: only the
    /// ratios of these public constants matter. A gradient is clipped after it is weighted, so that weights
    /// above 1 would be clipped away.
    ///
    /// # Guarantee
    /// Nothing is spent: the gradient of a weighted sample is clipped like any other.
    pub fn with_class_weights(mut self, weights: &[f32]) -> Result<Self, DataError> {
        let classes = self.classes().unwrap_or(0);
        if weights.len() != classes {
            return setting(
                "class-weights",
                format!("{} numbers", weights.len()),
                format!("{classes}"),
                "there is one weight for each class; a value to predict has none",
            );
        }
        if let Some(weight) = weights.iter().find(|weight| !(weight.is_finite() && **weight > 0.0)) {
            return setting("class-weights", weight, "finite and above 0", "the loss is multiplied by it");
        }
        let largest = weights.iter().copied().fold(f32::MIN_POSITIVE, f32::max);
        self.class_weights = weights.iter().map(|weight| weight / largest).collect();
        Ok(self)
    }

    /// What the loss of a sample is multiplied by.
    pub fn weight(&self, index: usize) -> f32 {
        let class = self.label(index).filter(|_| !self.class_weights.is_empty());
        class.map_or(1.0, |class| self.class_weights[class as usize])
    }

    /// N, the number of samples.
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Never true: a data set without samples cannot be made.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Height, width and channels; a row of a table is 1 × 1 × features.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// The values of one sample: height · width · channels.
    pub fn input_len(&self) -> usize {
        self.shape.iter().product()
    }

    /// The number of classes; `None` for regression.
    pub fn classes(&self) -> Option<usize> {
        match self.targets {
            Targets::Classes { classes, .. } => Some(classes),
            Targets::Values(_) => None,
        }
    }

    /// The inputs before normalisation.
    pub fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    /// The targets.
    pub fn targets(&self) -> &Targets {
        &self.targets
    }

    /// For each channel, whether it is numeric; false for the features of a categorical column,
    /// which are 0 or 1 and stay that way.
    pub fn numeric(&self) -> &[bool] {
        &self.numeric
    }

    /// The class of a sample; `None` for regression or beyond the end.
    pub fn label(&self, index: usize) -> Option<u32> {
        match &self.targets {
            Targets::Classes { labels, .. } => labels.get(index).copied(),
            Targets::Values(_) => None,
        }
    }

    /// The value of a sample; `None` for classification or beyond the end.
    pub fn value(&self, index: usize) -> Option<f32> {
        match &self.targets {
            Targets::Classes { .. } => None,
            Targets::Values(values) => values.get(index).copied(),
        }
    }

    /// Overwrites `out` with the normalised input of one sample, height, width, channel.
    ///
    /// # Panics
    ///
    /// If `index` is not below [`len`](Self::len) or `out` is not [`input_len`](Self::input_len) long.
    #[inline]
    pub fn copy_input(&self, index: usize, out: &mut [f32]) {
        let length = self.input_len();
        assert_eq!(out.len(), length, "the buffer must hold one sample");
        let sample = index * length..(index + 1) * length;
        match &self.inputs {
            Inputs::Bytes(values) => self.affine.apply(&values[sample.clone()], out),
            Inputs::Floats(values) => self.affine.apply(&values[sample.clone()], out),
            Inputs::Halves(values) => self.affine.apply(&values[sample.clone()], out),
        }
        if let Some(table) = self.table.as_ref().filter(|table| table.normalised) {
            out.iter_mut().for_each(|value| *value = value.clamp(-LIMIT, LIMIT));
            let missing = table.at.get(sample).unwrap_or_default();
            out.iter_mut().zip(missing).filter(|(_, missing)| **missing).for_each(|(value, _)| *value = 0.0);
        }
    }

    /// Says whether the constants of [`standardise`](Self::standardise) are means and deviations.
    pub(crate) fn set_normalised(&mut self, normalised: bool) {
        if let Some(table) = &mut self.table {
            table.normalised = normalised;
        }
    }

    /// Serves `(x − mean)/std` for each channel, where x is the value before normalisation, from 0 to 1. One
    /// pair per channel.
    pub(crate) fn standardise(&mut self, mean: &[f32], std: &[f32]) {
        self.affine = affine(&self.inputs, mean, std);
    }

    /// The mean and the deviation with which [`standardise`](Self::standardise) leaves values as they are.
    pub(crate) fn plain(&self) -> (f32, f32) {
        plain(&self.inputs)
    }

    /// The same targets with other inputs.
    pub(crate) fn with_inputs(&self, inputs: Inputs, shape: [usize; 3]) -> Result<Self, DataError> {
        let made = Self::new(inputs, self.targets.clone(), shape)?;
        Ok(Self { class_weights: self.class_weights.clone(), ..made })
    }

    /// Replaces the inputs by features of the given shape. `f` computes them from inputs as they are served,
    /// `block` samples or fewer at a time, on `threads` threads.
    ///
    /// # Guarantee
    /// A sample's features depend on that sample alone, provided that `f` computes those of each of its inputs
    /// from that input: data sets that differ in g samples still differ in g.
    pub fn map(
        &self,
        shape: [usize; 3],
        threads: usize,
        block: usize,
        f: impl Fn(&[f32], &mut [f32]) + Sync,
    ) -> Result<Self, DataError> {
        let (block, length, given) = (block.max(1), shape.iter().product::<usize>(), self.input_len());
        let mut features = vec![Half::default(); self.len() * length];
        let mut blocks = features.chunks_mut(block * length.max(1)).enumerate();
        let next = Mutex::new(&mut blocks);
        std::thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                scope.spawn(|| {
                    let (mut inputs, mut made) = (vec![0.0; block * given], vec![0.0; block * length]);
                    // A poisoned lock means that another thread panicked; the scope passes that on.
                    while let Some((i, features)) = next.lock().ok().and_then(|mut blocks| blocks.next()) {
                        let samples = features.len() / length;
                        for (j, input) in inputs.chunks_exact_mut(given).take(samples).enumerate() {
                            self.copy_input(i * block + j, input);
                        }
                        let made = &mut made[..features.len()];
                        f(&inputs[..samples * given], made);
                        features.iter_mut().zip(made).for_each(|(half, made)| *half = Half::new(*made));
                    }
                });
            }
        });
        self.with_inputs(Inputs::Halves(features), shape)
    }

    /// The samples in `range`, a public rule; a range that reaches past the end is cut off there.
    pub fn part(&self, range: Range<usize>) -> Result<Self, DataError> {
        let end = range.end.min(self.len());
        if range.start >= end {
            let given = format!("{}..{}", range.start, range.end);
            return setting(
                "part",
                given,
                format!("of {} samples", self.len()),
                "a data set must not be empty",
            );
        }
        let range = range.start..end;
        let values = range.start * self.input_len()..range.end * self.input_len();
        Ok(Self {
            inputs: match &self.inputs {
                Inputs::Bytes(all) => Inputs::Bytes(all[values.clone()].to_vec()),
                Inputs::Floats(all) => Inputs::Floats(all[values.clone()].to_vec()),
                Inputs::Halves(all) => Inputs::Halves(all[values.clone()].to_vec()),
            },
            targets: match &self.targets {
                Targets::Classes { labels, classes } => {
                    Targets::Classes { labels: labels[range].to_vec(), classes: *classes }
                }
                Targets::Values(all) => Targets::Values(all[range].to_vec()),
            },
            shape: self.shape,
            numeric: self.numeric.clone(),
            affine: self.affine.clone(),
            class_weights: self.class_weights.clone(),
            table: self.table.as_ref().map(|table| Missing {
                at: table.at.get(values).unwrap_or_default().to_vec(),
                normalised: table.normalised,
            }),
        })
    }
}

/// How far from 0 features are expected to lie, a public constant: ±[`REACH`] is the range from 0 to 1 in
/// which normalisation sees them.
pub const REACH: f32 = 4.0;

/// a and b of the value x = a·stored + b before normalisation, from 0 to 1.
pub(crate) fn scale(inputs: &Inputs) -> [f32; 2] {
    match inputs {
        Inputs::Bytes(_) => [1.0 / 255.0, 0.0],
        Inputs::Floats(_) => [1.0, 0.0],
        Inputs::Halves(_) => [0.5 / REACH, 0.5],
    }
}

/// (x − mean)/std of what is stored.
fn affine(inputs: &Inputs, mean: &[f32], std: &[f32]) -> Affine {
    let [unit, zero] = scale(inputs);
    let slope: Vec<f32> = std.iter().map(|std| unit / std).collect();
    let shift: Vec<f32> = mean.iter().zip(std).map(|(mean, std)| (zero - mean) / std).collect();
    Affine::new(&slope, &shift)
}

/// A mean and a deviation that change nothing: bytes are served from 0 to 1, other values as they are.
fn plain(inputs: &Inputs) -> (f32, f32) {
    match inputs {
        Inputs::Bytes(_) | Inputs::Floats(_) => (0.0, 1.0),
        Inputs::Halves(_) => (0.5, 0.5 / REACH),
    }
}

/// A data set for training and one of the same shape for testing.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// What the model learns from.
    pub train: Dataset,
    /// What it never sees.
    pub test: Dataset,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(count: usize) -> Targets {
        Targets::Classes { labels: vec![0; count], classes: 1 }
    }

    /// The served value, spelled out.
    fn served(x: f32, mean: f32, std: f32) -> f32 {
        (x - mean) / std
    }

    #[test]
    fn every_channel_has_its_own_constants_for_every_shape() {
        for (height, width, channels) in
            [(1, 1, 1), (28, 28, 1), (32, 32, 3), (5, 7, 16), (3, 3, 17), (1, 1, 105)]
        {
            let length = height * width * channels;
            let bytes: Vec<u8> = (0..3 * length).map(|i| (i * 31 % 256) as u8).collect();
            let floats: Vec<f32> = bytes.iter().map(|byte| f32::from(*byte) / 255.0).collect();
            let mean: Vec<f32> = (0..channels).map(|c| 0.1 + 0.01 * c as f32).collect();
            let std: Vec<f32> = (0..channels).map(|c| 0.3 + 0.02 * c as f32).collect();
            for inputs in [Inputs::Bytes(bytes.clone()), Inputs::Floats(floats.clone())] {
                let mut set = Dataset::new(inputs, labels(3), [height, width, channels]).unwrap();
                let mut out = vec![f32::NAN; length];
                set.copy_input(2, &mut out);
                for (i, out) in out.iter().enumerate() {
                    assert!((out - floats[2 * length + i]).abs() < 1e-6);
                }
                set.standardise(&mean, &std);
                set.copy_input(1, &mut out);
                for (i, out) in out.iter().enumerate() {
                    let c = i % channels;
                    assert!((out - served(floats[length + i], mean[c], std[c])).abs() < 1e-5, "{i} {out}");
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let refused = |inputs, targets, shape| Dataset::new(inputs, targets, shape).unwrap_err().to_string();
        let bytes = |count| Inputs::Bytes(vec![0; count]);
        assert!(refused(bytes(5), labels(2), [1, 3, 1]).contains("2 samples of 1×3×1"));
        assert!(refused(bytes(0), labels(0), [1, 3, 1]).contains("at least 1"));
        assert!(refused(bytes(0), labels(1), [0, 3, 1]).contains("at least 1×1×1"));
        assert!(refused(bytes(1), labels(1), [usize::MAX, 3, 1]).contains("small enough for memory"));
        let wrong = Targets::Classes { labels: vec![0, 10], classes: 10 };
        assert!(refused(bytes(2), wrong, [1, 1, 1]).contains("label = 10: below 10"));
        assert!(refused(Inputs::Floats(vec![f32::NAN]), labels(1), [1, 1, 1]).contains("finite"));
        assert!(refused(bytes(1), Targets::Values(vec![f32::INFINITY]), [1, 1, 1]).contains("finite"));
    }

    #[test]
    fn features_are_those_of_each_sample() {
        let targets = Targets::Classes { labels: vec![0, 1, 2, 1, 0], classes: 3 };
        let mut set = Dataset::new(Inputs::Bytes((0..10).collect()), targets.clone(), [1, 2, 1]).unwrap();
        set.standardise(&[0.5], &[0.25]);
        for (threads, block) in [(1, 1), (2, 1), (3, 2), (8, 16), (1, 4), (2, 0)] {
            let map = |x: &[f32], out: &mut [f32]| {
                for (x, out) in x.chunks_exact(2).zip(out.chunks_exact_mut(3)) {
                    out.copy_from_slice(&[x[0] + x[1], x[0] * x[1], 1.0]);
                }
            };
            let made = set.map([1, 1, 3], threads, block, map).unwrap();
            assert_eq!((made.shape(), made.targets()), ([1, 1, 3], &targets));
            for i in 0..5 {
                let (mut x, mut out) = ([0.0; 2], [0.0; 3]);
                set.copy_input(i, &mut x);
                made.copy_input(i, &mut out);
                let expected = [x[0] + x[1], x[0] * x[1], 1.0].map(|value| f32::from(Half::new(value)));
                assert_eq!(out, expected, "sample {i} with {threads} threads, {block} at a time");
            }
        }
        assert!(set.map([0, 1, 1], 2, 1, |_, _| ()).is_err(), "a sample holds something");
        assert!(set.map([1, 1, 1], 2, 1, |_, out| out[0] = f32::NAN).is_err(), "every number is finite");
    }

    #[test]
    fn a_missing_value_is_the_mean_and_a_far_one_the_limit() {
        let set = Dataset::new(Inputs::Floats(vec![0.5, 0.9, 0.3, 0.2]), labels(2), [1, 1, 2]).unwrap();
        let mut set = set.with_missing(vec![true, false, false, false]);
        let mut row = [0.0; 2];
        set.copy_input(0, &mut row);
        assert_eq!(row, [0.5, 0.9], "nothing is normalised yet");
        set.standardise(&[0.2, 0.1], &[0.1, 0.01]);
        set.set_normalised(true);
        set.copy_input(0, &mut row);
        assert_eq!(row, [0.0, LIMIT]);
        set.part(1..2).unwrap().copy_input(0, &mut row);
        assert!((row[0] - 1.0).abs() < 1e-6 && row[1] == LIMIT, "{row:?}");
    }

    #[test]
    fn only_the_ratios_of_class_weights_matter() {
        let targets = Targets::Classes { labels: vec![0, 1], classes: 2 };
        let set = Dataset::new(Inputs::Bytes(vec![1, 2]), targets, [1, 1, 1]).unwrap();
        assert_eq!((set.weight(0), set.weight(1)), (1.0, 1.0));
        let set = set.with_class_weights(&[2.0, 20.0]).unwrap();
        assert_eq!((set.weight(0), set.weight(1)), (0.1, 1.0));
        for wrong in [&[1.0][..], &[1.0, 0.0], &[1.0, f32::NAN], &[1.0, -1.0]] {
            assert!(set.clone().with_class_weights(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_part_is_what_it_was() {
        let targets = Targets::Classes { labels: vec![0, 1, 2], classes: 3 };
        let mut set = Dataset::new(Inputs::Bytes(vec![1, 2, 3, 4, 5, 6]), targets, [1, 2, 1]).unwrap();
        set.standardise(&[0.5], &[0.25]);
        let part = set.part(1..9).unwrap();
        assert_eq!((part.len(), part.label(0), part.label(2)), (2, Some(1), None));
        assert_eq!((part.classes(), part.inputs()), (Some(3), &Inputs::Bytes(vec![3, 4, 5, 6])));
        let (mut whole, mut served) = ([0.0; 2], [0.0; 2]);
        set.copy_input(2, &mut whole);
        part.copy_input(1, &mut served);
        assert_eq!(whole, served);
        assert!(set.part(3..5).is_err() && set.part(1..1).is_err());
    }
}
