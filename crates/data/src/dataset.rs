//! Samples in memory, served one at a time as `f32`, channel last.

use std::ops::Range;

use crate::error::{DataError, setting};

/// The inputs of all samples, one after the other, each in the order height, width, channel.
#[derive(Clone, Debug, PartialEq)]
pub enum Inputs {
    /// Images as they are on disk; a byte p stands for p/255.
    Bytes(Vec<u8>),
    /// Anything else.
    Floats(Vec<f32>),
}

impl Inputs {
    fn len(&self) -> usize {
        match self {
            Inputs::Bytes(values) => values.len(),
            Inputs::Floats(values) => values.len(),
        }
    }
}

/// What is to be learned, one for each sample.
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
}

impl Dataset {
    /// Samples of the given shape (height, width, channels), checked once: as many inputs as targets,
    /// at least one sample, every label below the number of classes, every float finite.
    pub fn new(inputs: Inputs, targets: Targets, shape: [usize; 3]) -> Result<Self, DataError> {
        let shape_text = format!("{}×{}×{}", shape[0], shape[1], shape[2]);
        let Some(length) = shape[0].checked_mul(shape[1]).and_then(|area| area.checked_mul(shape[2])) else {
            return setting("shape", shape_text, "at most memory", "it is the size of one sample");
        };
        if length == 0 {
            return setting("shape", shape_text, "at least 1×1×1", "a sample holds something");
        }
        if targets.is_empty() {
            return setting("samples", 0, "at least 1", "there is nothing to learn from");
        }
        if length.checked_mul(targets.len()) != Some(inputs.len()) {
            return setting(
                "inputs",
                inputs.len(),
                format!("{} samples of {shape_text}", targets.len()),
                "every target has one input",
            );
        }
        if let Targets::Classes { labels, classes } = &targets
            && let Some(label) = labels.iter().find(|label| **label as usize >= *classes)
        {
            return setting("label", label, format!("below {classes}"), "it is the number of classes");
        }
        let floats = [
            if let Inputs::Floats(values) = &inputs { values.as_slice() } else { &[] },
            if let Targets::Values(values) = &targets { values.as_slice() } else { &[] },
        ];
        if let Some(value) = floats.iter().copied().flatten().find(|value| !value.is_finite()) {
            return setting("value", value, "finite", "one infinite or undefined value spoils a gradient");
        }
        let numeric = vec![true; shape[2]];
        let affine = Affine::new(&vec![unit(&inputs); shape[2]], &vec![0.0; shape[2]]);
        Ok(Self { inputs, targets, shape, numeric, affine })
    }

    /// Marks the channels that are measured on a scale; the others (one-hot) are never normalised.
    pub(crate) fn with_numeric(mut self, numeric: Vec<bool>) -> Self {
        debug_assert_eq!(numeric.len(), self.shape[2]);
        self.numeric = numeric;
        self
    }

    /// N, the number of samples.
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Never true: a set without samples cannot be made.
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

    /// The number of classes; none for regression.
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

    /// For each channel whether it is measured on a scale; false for the features of a categorical
    /// column, which are 0 or 1 and stay so.
    pub fn numeric(&self) -> &[bool] {
        &self.numeric
    }

    /// The class of a sample; none for regression or beyond the end.
    pub fn label(&self, index: usize) -> Option<u32> {
        match &self.targets {
            Targets::Classes { labels, .. } => labels.get(index).copied(),
            Targets::Values(_) => None,
        }
    }

    /// The value of a sample; none for classification or beyond the end.
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
            Inputs::Bytes(values) => self.affine.apply(&values[sample], out),
            Inputs::Floats(values) => self.affine.apply(&values[sample], out),
        }
    }

    /// Serves `(x − mean)/std` for each channel, x being the value before normalisation. One pair for
    /// each channel.
    pub(crate) fn standardise(&mut self, mean: &[f32], std: &[f32]) {
        let unit = unit(&self.inputs);
        let scale: Vec<f32> = std.iter().map(|std| unit / std).collect();
        let shift: Vec<f32> = mean.iter().zip(std).map(|(mean, std)| -mean / std).collect();
        self.affine = Affine::new(&scale, &shift);
    }

    /// Features in the place of the inputs, which are given to `f` as they are served; their shape, and so many threads.
    ///
    /// # Guarantee
    /// A sample's features depend on that sample alone, as far as `f` is a function of what it is given: data sets that
    /// differ in g samples still differ in g.
    pub fn map(
        &self,
        shape: [usize; 3],
        threads: usize,
        f: impl Fn(&[f32], &mut [f32]) + Sync,
    ) -> Result<Self, DataError> {
        let length: usize = shape.iter().product();
        let mut features = vec![0.0; self.len() * length];
        let part = self.len().div_ceil(threads.max(1));
        std::thread::scope(|scope| {
            for (i, features) in features.chunks_mut(part * length.max(1)).enumerate() {
                let f = &f;
                scope.spawn(move || {
                    let mut input = vec![0.0; self.input_len()];
                    for (j, out) in features.chunks_exact_mut(length).enumerate() {
                        self.copy_input(i * part + j, &mut input);
                        f(&input, out);
                    }
                });
            }
        });
        Self::new(Inputs::Floats(features), self.targets.clone(), shape)
    }

    /// Some consecutive samples, a public rule: as many of them as there are.
    pub fn part(&self, range: Range<usize>) -> Result<Self, DataError> {
        let end = range.end.min(self.len());
        if range.start >= end {
            let given = format!("{}..{}", range.start, range.end);
            return setting("part", given, format!("of {} samples", self.len()), "a data set is not empty");
        }
        let range = range.start..end;
        let values = range.start * self.input_len()..range.end * self.input_len();
        Ok(Self {
            inputs: match &self.inputs {
                Inputs::Bytes(all) => Inputs::Bytes(all[values].to_vec()),
                Inputs::Floats(all) => Inputs::Floats(all[values].to_vec()),
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
        })
    }
}

/// What one unit of a stored value stands for.
fn unit(inputs: &Inputs) -> f32 {
    match inputs {
        Inputs::Bytes(_) => 1.0 / 255.0,
        Inputs::Floats(_) => 1.0,
    }
}

/// A data set for training and one, of the same shape, for measuring what was learned.
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
        assert!(refused(bytes(1), labels(1), [usize::MAX, 3, 1]).contains("at most memory"));
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
        for threads in [1, 2, 3, 8] {
            let map = |x: &[f32], out: &mut [f32]| out.copy_from_slice(&[x[0] + x[1], x[0] * x[1], 1.0]);
            let made = set.map([1, 1, 3], threads, map).unwrap();
            assert_eq!((made.shape(), made.targets()), ([1, 1, 3], &targets));
            for i in 0..5 {
                let (mut x, mut out) = ([0.0; 2], [0.0; 3]);
                set.copy_input(i, &mut x);
                made.copy_input(i, &mut out);
                assert_eq!(out, [x[0] + x[1], x[0] * x[1], 1.0], "sample {i} with {threads} threads");
            }
        }
        assert!(set.map([0, 1, 1], 2, |_, _| ()).is_err(), "a sample holds something");
        assert!(set.map([1, 1, 1], 2, |_, out| out[0] = f32::NAN).is_err(), "every number is finite");
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
