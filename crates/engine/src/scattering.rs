//! The scattering transform of an image: features that no data were needed for.
//!
//! Oriented wavelets, the modulus, wavelets again, and a local mean (Bruna and Mallat 2013; Oyallon and Mallat 2015), with
//! J = 2 scales and L = 8 orientations, to the second order. A quarter of the height and width remain, with 81 channels
//! for each of the image's: 1 mean, 16 means of |x ∗ ψ|, 64 means of ||x ∗ ψ| ∗ ψ′|. A linear model on them learns more
//! from a noised gradient than a network from pixels (Tramèr and Boneh 2021).
//!
//! Every image is transformed by itself, so neighbouring data sets stay neighbours: it costs no privacy.

use std::f64::consts::PI;

use crate::kernel::{Level, scatter};

/// L, orientations.
const ORIENTATIONS: usize = 8;
/// Channels of the result for one of the image.
const CHANNELS: usize = 1 + 2 * ORIENTATIONS + ORIENTATIONS * ORIENTATIONS;
/// σ of the Gaussian envelope of the finest wavelet, and of the mean over 2^J pixels.
const WIDTH: f64 = 0.8;
const MEAN_WIDTH: f64 = 1.6;
/// The centre frequency of the finest wavelet.
const FREQUENCY: f64 = 0.75 * PI;
/// How much longer a wavelet is along its crests than across them.
const ELONGATION: f64 = 2.0;
/// Where the envelope is cut off, in σ.
const CUT: f64 = 3.3;
/// What is added to a variance before it divides.
const TINY: f64 = 1e-6;

/// Images of one shape, and their transform.
#[derive(Clone, Debug)]
pub struct Scattering {
    shape: [usize; 3],
    level: Level,
    /// For each orientation.
    fine: Vec<scatter::Filter>,
    coarse: Vec<scatter::Filter>,
}

/// An image that the transform does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("scattering: an image of {0} × {1} pixels; both must be multiples of 4, and at least 16")]
pub struct ShapeError(usize, usize);

/// A point of a wavelet: dy, dx, and its complex value.
pub type Point = (isize, isize, [f64; 2]);

/// The Morlet wavelet of scale j and angle θ, Σψ = 0.
pub fn morlet(j: u32, angle: f64) -> Vec<Point> {
    let scale = f64::from(1u32 << j);
    let (width, frequency) = (WIDTH * scale, FREQUENCY / scale);
    let reach = (CUT * width * ELONGATION).ceil() as isize;
    let mut points = Vec::new();
    let (mut wave, mut envelope) = ([0.0; 2], 0.0);
    for (dy, dx) in (-reach..=reach).flat_map(|dy| (-reach..=reach).map(move |dx| (dy, dx))) {
        let (y, x) = (dy as f64, dx as f64);
        let (across, along) = (x * angle.cos() + y * angle.sin(), y * angle.cos() - x * angle.sin());
        let distance = (across / width).powi(2) + (along / (width * ELONGATION)).powi(2);
        if distance > CUT * CUT {
            continue;
        }
        let height = (-0.5 * distance).exp() / (2.0 * PI * width * width * ELONGATION);
        let value = [height * (frequency * across).cos(), height * (frequency * across).sin()];
        wave = [wave[0] + value[0], wave[1] + value[1]];
        envelope += height;
        points.push((dy, dx, [value[0], value[1], height]));
    }
    let mean = [wave[0] / envelope, wave[1] / envelope];
    points
        .into_iter()
        .map(|(dy, dx, [re, im, height])| (dy, dx, [re - mean[0] * height, im - mean[1] * height]))
        .collect()
}

/// The Gaussian of a width in pixels, Σ = 1.
pub fn gaussian(width: f64) -> Vec<f64> {
    let reach = (CUT * width).ceil() as i32;
    let bell: Vec<f64> = (-reach..=reach).map(|x| (-0.5 * (f64::from(x) / width).powi(2)).exp()).collect();
    let sum: f64 = bell.iter().sum();
    bell.into_iter().map(|height| height / sum).collect()
}

/// The angle of an orientation.
pub fn angle(orientation: usize) -> f64 {
    PI * orientation as f64 / ORIENTATIONS as f64
}

impl Scattering {
    /// For images of a shape (height, width, channels).
    pub fn new(shape: [usize; 3], level: Level) -> Result<Self, ShapeError> {
        let [height, width, _] = shape;
        if height % 4 != 0 || width % 4 != 0 || height < 16 || width < 16 {
            return Err(ShapeError(height, width));
        }
        let filters = |j: u32, step: usize| {
            (0..ORIENTATIONS)
                .map(|orientation| {
                    scatter::Filter::new(&morlet(j, angle(orientation)), [height, width], step)
                })
                .collect()
        };
        Ok(Self { shape, level, fine: filters(0, 1), coarse: filters(1, 2) })
    }

    /// The shape of the result.
    pub fn features(&self) -> [usize; 3] {
        let [height, width, channels] = self.shape;
        [height / 4, width / 4, CHANNELS * channels]
    }

    /// Transforms an image, rows of pixels of channels, into `out`, rows of pixels of channels.
    ///
    /// The means of one kind (the image's own; one scale of the first order; one orientation of the first wavelet in
    /// the second order) are normalised together, over the image and its channels: mean 0, variance 1.
    ///
    /// # Panics
    /// If the slices are not of their shapes.
    pub fn transform(&self, image: &[f32], out: &mut [f32]) {
        let [height, width, colours] = self.shape;
        let places = height * width / 16;
        assert_eq!(image.len(), height * width * colours, "an image of the shape");
        assert_eq!(out.len(), places * CHANNELS * colours, "room for its transform");
        let mut put = |channel: usize, colour: usize, means: &[f32]| {
            for (place, mean) in means.iter().enumerate() {
                out[(place * CHANNELS + channel) * colours + colour] = *mean;
            }
        };
        let (whole, half) = (gaussian(MEAN_WIDTH), gaussian(MEAN_WIDTH / 2.0));
        let mut plane = vec![0.0; height * width];
        let mut fine = vec![0.0; height * width];
        let mut coarse = vec![0.0; height * width / 4];
        let mut spread = scatter::Spread::new([height, width]);
        for colour in 0..colours {
            for (to, pixel) in plane.iter_mut().zip(image.chunks_exact(colours)) {
                *to = pixel[colour];
            }
            put(0, colour, &scatter::mean(&plane, width, &whole, 4));
            spread.fill(&plane, 2);
            for (k, filter) in self.coarse.iter().enumerate() {
                scatter::modulus(self.level, filter, spread.values(), &mut coarse);
                put(1 + ORIENTATIONS + k, colour, &scatter::mean(&coarse, width / 2, &half, 2));
            }
            for (k, filter) in self.fine.iter().enumerate() {
                spread.fill(&plane, 1);
                scatter::modulus(self.level, filter, spread.values(), &mut fine);
                put(1 + k, colour, &scatter::mean(&fine, width, &whole, 4));
                spread.fill(&fine, 2);
                for (l, filter) in self.coarse.iter().enumerate() {
                    scatter::modulus(self.level, filter, spread.values(), &mut coarse);
                    let channel = 1 + (2 + k) * ORIENTATIONS + l;
                    put(channel, colour, &scatter::mean(&coarse, width / 2, &half, 2));
                }
            }
        }
        normalise(out, CHANNELS * colours, colours);
    }
}

/// Every kind of mean to mean 0 and variance 1 over the image.
fn normalise(out: &mut [f32], channels: usize, colours: usize) {
    let kinds = std::iter::once(0..1)
        .chain((0..2 + ORIENTATIONS).map(|kind| 1 + kind * ORIENTATIONS..1 + (kind + 1) * ORIENTATIONS));
    for kind in kinds.map(|kind| kind.start * colours..kind.end * colours) {
        let values = out.chunks_exact(channels).flat_map(|place| &place[kind.clone()]).map(|x| f64::from(*x));
        let count = (out.len() / channels * kind.len()) as f64;
        let (sum, squares) = values.fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
        let mean = sum / count;
        let scale = 1.0 / (squares / count - mean * mean + TINY).max(TINY).sqrt();
        for place in out.chunks_exact_mut(channels) {
            for x in &mut place[kind.clone()] {
                *x = ((f64::from(*x) - mean) * scale) as f32;
            }
        }
    }
}
