//! Features instead of pixels, computed once, from each sample alone.

pub mod cache;

use dpsgd_engine::Level;
use dpsgd_engine::random_filters::{self, RandomFilters, View};
use dpsgd_engine::scattering::{self, CHANNELS, ORIENTATIONS, Scattering};
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
    /// The share of each of 512 fixed filters in 4 × 4 cells of the image, see
    /// [`dpsgd_engine::random_filters`], brought to mean 0 and variance 1 over the image.
    RandomFilters,
    /// The same for the image and its mirror image together: for images that mean the same both ways.
    RandomFiltersMirrored,
}

impl Features {
    /// The name in settings and statements.
    pub fn name(self) -> &'static str {
        match self {
            Features::Scattering => "scattering",
            Features::ScatteringFlat => "scattering-flat",
            Features::RandomFilters => "random-filters",
            Features::RandomFiltersMirrored => "random-filters-mirrored",
        }
    }

    /// The transform whose numbers these are, in the same order: what the cache keeps.
    fn transform(self) -> &'static str {
        match self {
            Features::ScatteringFlat => Features::Scattering.name(),
            _ => self.name(),
        }
    }

    /// The shape of the features of a sample of the given shape.
    pub fn shape(self, of: [usize; 3]) -> Result<[usize; 3], FeaturesError> {
        Ok(Transform::new(self, of)?.shape)
    }
}

/// Features of images of one shape.
struct Transform {
    of: Of,
    /// The shape of the features of a sample.
    shape: [usize; 3],
    /// The kind of each channel: each is normalised on its own.
    kinds: Vec<usize>,
}

enum Of {
    Scattering(Box<Scattering>),
    RandomFilters(Box<RandomFilters>),
}

impl Transform {
    fn new(features: Features, of: [usize; 3]) -> Result<Self, FeaturesError> {
        let level = Level::best();
        Ok(match features {
            Features::Scattering | Features::ScatteringFlat => {
                let scattering = Scattering::new(of, level)?;
                let planes = scattering.features();
                let flat = [1, 1, planes.iter().product()];
                let shape = if features == Features::Scattering { planes } else { flat };
                Self { of: Of::Scattering(scattering.into()), shape, kinds: kinds(planes[2]) }
            }
            Features::RandomFilters | Features::RandomFiltersMirrored => {
                let mirrored = features == Features::RandomFiltersMirrored;
                let view = if mirrored { View::Mirrored } else { View::Plain };
                let filters = RandomFilters::new(of, view, level)?;
                let shape = filters.features();
                Self { of: Of::RandomFilters(filters.into()), shape, kinds: vec![0; shape[2]] }
            }
        })
    }

    /// The normalised features of some images.
    fn apply(&self, images: &[f32], out: &mut [f32]) {
        match &self.of {
            Of::Scattering(scattering) => scattering.transform(images, out),
            Of::RandomFilters(filters) => filters.transform(images, out),
        }
        let length = self.shape.iter().product();
        out.chunks_exact_mut(length).for_each(|image| normalise(image, &self.kinds));
    }
}

/// Why features could not be computed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FeaturesError {
    /// The images do not have a shape that scattering is defined for.
    #[error("features = {0}")]
    Scattering(#[from] scattering::ShapeError),
    /// The images do not have a shape that random filters are defined for.
    #[error("features = {0}")]
    RandomFilters(#[from] random_filters::ShapeError),
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
        train: computed(&split.train, &Transform::new(features, split.train.shape())?, threads)?,
        test: computed(&split.test, &Transform::new(features, split.test.shape())?, threads)?,
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
        let transform = Transform::new(features, pixels.shape())?;
        let length = pixels.len() * transform.shape.iter().product::<usize>();
        if let Some(halves) = cache.read(features, pixels, length) {
            return Ok(pixels.with_inputs(Inputs::Halves(halves), transform.shape)?);
        }
        found = false;
        let made = computed(pixels, &transform, threads)?;
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

fn computed(pixels: &Dataset, transform: &Transform, threads: usize) -> Result<Dataset, FeaturesError> {
    Ok(pixels.map(transform.shape, threads, BLOCK, |images, out| transform.apply(images, out))?)
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
