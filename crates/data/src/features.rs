//! Features instead of pixels, computed once, from each sample alone.

pub mod cache;

use dpsgd_engine::Level;
use dpsgd_engine::scattering::{CHANNELS, ORIENTATIONS, Scattering, ShapeError};
use serde::{Deserialize, Serialize};

use self::cache::Cache;
use crate::dataset::{Dataset, Inputs, Split};
use crate::error::DataError;

/// The images that a thread transforms at a time: as many as a vector has lanes.
const BLOCK: usize = 16;

/// Added to a variance before dividing by it: a flat image has no structure to be blown up.
const LEAST_VARIANCE: f64 = 1e-5;

/// The available features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Features {
    /// Fixed oriented wavelets, see [`dpsgd_engine::scattering`]. Coefficients of one kind (the local means of
    /// the image; the first order at one scale; the second order of one first orientation) are brought to
    /// mean 0 and variance 1 over the image and its colours.
    Scattering,
    /// The same numbers as one vector. Every coefficient of every place is then a channel of its own, which
    /// [`Private`](crate::normalise::Private) centres and scales on its own: a linear model learns more from
    /// a noised gradient if no part of it is spent on what all images have in common.
    ScatteringFlat,
}

impl Features {
    /// The name in settings and statements.
    pub fn name(self) -> &'static str {
        match self {
            Features::Scattering => "scattering",
            Features::ScatteringFlat => "scattering-flat",
        }
    }

    /// The transform whose numbers these are, in the same order: what the cache keeps.
    fn transform(self) -> &'static str {
        match self {
            Features::Scattering | Features::ScatteringFlat => Features::Scattering.name(),
        }
    }

    /// The shape of the features of a sample of the given shape.
    pub fn shape(self, of: [usize; 3]) -> Result<[usize; 3], FeaturesError> {
        let shape = Scattering::new(of, Level::best())?.features();
        Ok(match self {
            Features::Scattering => shape,
            Features::ScatteringFlat => [1, 1, shape.iter().product()],
        })
    }
}

/// Why features could not be computed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FeaturesError {
    /// The images do not have a shape the features are defined for.
    #[error("features = {0}")]
    Shape(#[from] ShapeError),
    /// The features are not a valid data set.
    #[error(transparent)]
    Data(#[from] DataError),
}

/// Features, and where they came from.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Both sets.
    pub split: Split,
    /// Whether they were read from the cache.
    pub found: bool,
    /// Why they could not be kept, if they could not: nothing else depends on it.
    pub not_kept: Option<String>,
}

/// Replaces the inputs of both sets by their features, on several threads.
///
/// # Guarantee
/// Neighbouring data sets have neighbouring features ([`Dataset::map`]): nothing is spent.
pub fn of(split: &Split, features: Features, threads: usize) -> Result<Split, FeaturesError> {
    Ok(Split {
        train: computed(&split.train, features, threads)?,
        test: computed(&split.test, features, threads)?,
    })
}

/// [`of`], unless the features are in the cache; they are afterwards. The result is the same to the bit.
///
/// # Guarantee
/// That of [`of`]. The cache holds what the samples hold: the caller sees to it that nobody reads it who may
/// not read them.
pub fn cached(
    split: &Split,
    features: Features,
    threads: usize,
    cache: &Cache,
) -> Result<Taken, FeaturesError> {
    let (mut found, mut not_kept) = (true, None);
    let mut set = |pixels: &Dataset| -> Result<Dataset, FeaturesError> {
        let shape = features.shape(pixels.shape())?;
        let length = pixels.len() * shape.iter().product::<usize>();
        if let Some(halves) = cache.read(features, pixels, length) {
            return Ok(pixels.with_inputs(Inputs::Halves(halves), shape)?);
        }
        found = false;
        let made = computed(pixels, features, threads)?;
        if let Inputs::Halves(halves) = made.inputs()
            && let Err(error) = cache.write(features, pixels, halves)
        {
            not_kept = Some(format!("{}: {error}", cache.directory().display()));
        }
        Ok(made)
    };
    let split = Split { train: set(&split.train)?, test: set(&split.test)? };
    Ok(Taken { split, found, not_kept })
}

fn computed(pixels: &Dataset, features: Features, threads: usize) -> Result<Dataset, FeaturesError> {
    let scattering = Scattering::new(pixels.shape(), Level::best())?;
    let kinds = kinds(scattering.features()[2]);
    let shape = features.shape(pixels.shape())?;
    let length: usize = shape.iter().product();
    Ok(pixels.map(shape, threads, BLOCK, |images, out| {
        scattering.transform(images, out);
        out.chunks_exact_mut(length).for_each(|image| normalise(image, &kinds));
    })?)
}

/// The kind of each channel, of all colours.
fn kinds(channels: usize) -> Vec<usize> {
    (0..channels).map(|channel| (channel % CHANNELS).div_ceil(ORIENTATIONS)).collect()
}

/// Brings the coefficients of every kind in one image to mean 0 and variance 1.
fn normalise(image: &mut [f32], kinds: &[usize]) {
    let count = kinds.iter().max().map_or(0, |most| most + 1);
    let mut sums = vec![[0.0_f64; 3]; count];
    let mut channels = vec![[0.0_f64; 2]; kinds.len()];
    for place in image.chunks_exact(kinds.len()) {
        for (sum, &x) in channels.iter_mut().zip(place) {
            let x = f64::from(x);
            *sum = [sum[0] + x, sum[1] + x * x];
        }
    }
    let places = (image.len() / kinds.len()) as f64;
    for (&kind, channel) in kinds.iter().zip(&channels) {
        let sum = &mut sums[kind];
        *sum = [sum[0] + channel[0], sum[1] + channel[1], sum[2] + places];
    }
    let constants: Vec<[f32; 2]> = sums
        .iter()
        .map(|[sum, squares, count]| {
            let mean = sum / count;
            let scale = 1.0 / ((squares / count - mean * mean).max(0.0) + LEAST_VARIANCE).sqrt();
            [scale as f32, (-mean * scale) as f32]
        })
        .collect();
    let constants: Vec<[f32; 2]> = kinds.iter().map(|&kind| constants[kind]).collect();
    for place in image.chunks_exact_mut(kinds.len()) {
        for (x, [scale, shift]) in place.iter_mut().zip(&constants) {
            *x = *x * scale + shift;
        }
    }
}

#[cfg(test)]
mod tests;
