//! The scattering transform of an image: features that need no training data.
//!
//! Oriented wavelets, the modulus, wavelets again, and a local mean (Bruna and Mallat 2013; Oyallon and
//! Mallat 2015), with J = 2 scales and L = 8 orientations, to the second order. A quarter of the height and
//! width remain, with 81 channels for each of the image's: 1 mean, 16 means of |x ∗ ψ|, 64 means of ||x ∗ ψ|
//! ∗ ψ′|. A linear model on them learns more from a noised gradient than a network from pixels (Tramèr and
//! Boneh 2021).
//!
//! These are the numbers of `Scattering2D(J=2)` of kymatio 0.3 to 1e-5, in its order: the image is reflected
//! at its edges by 4 pixels and is periodic beyond, wavelets are products in the frequency domain, and a mean
//! at half the resolution has no frequencies beyond half its own.
//!
//! Each image is transformed on its own, so neighbouring data sets stay neighbours: this costs no privacy.

mod filters;

use dpsgd_kernels::fourier::{Complex, LANES, Lane, Line, ZERO, transform};
use dpsgd_kernels::{Level, scatter};

pub use filters::{ORIENTATIONS, PADDING};

/// Output channels for each channel of the image.
pub const CHANNELS: usize = 1 + 2 * ORIENTATIONS + ORIENTATIONS * ORIENTATIONS;

/// The transform for images of one shape.
#[derive(Clone, Debug)]
pub struct Scattering {
    shape: [usize; 3],
    level: Level,
    /// The spectra of the wavelets, for each orientation.
    fine: Vec<Vec<f32>>,
    coarse: Vec<Vec<f32>>,
    /// The weights of the local means of a whole and of a half plane: for the rows, for the columns.
    whole: [Vec<f32>; 2],
    half: [Vec<f32>; 2],
    forwards: [Line; 2],
    backwards: [Line; 2],
    half_backwards: [Line; 2],
}

/// An image shape that the transform does not support.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("scattering: an image of {0} × {1} pixels; both must be multiples of 4, and at least 8")]
pub struct ShapeError(usize, usize);

/// What is computed on the way, for sixteen planes.
struct Room {
    /// The padded planes and their transforms.
    image: Vec<Complex>,
    /// One wavelet's response, and the moduli of two.
    response: Vec<Complex>,
    moduli: [Vec<Lane>; 2],
    /// The transforms of those moduli.
    spectra: [Vec<Complex>; 2],
    half: Vec<Complex>,
    half_modulus: Vec<Lane>,
    means: Vec<Lane>,
}

impl Scattering {
    /// For images of the given shape (height, width, channels).
    pub fn new(shape: [usize; 3], level: Level) -> Result<Self, ShapeError> {
        let [height, width, _] = shape;
        if height % 4 != 0 || width % 4 != 0 || height < 8 || width < 8 {
            return Err(ShapeError(height, width));
        }
        let size = [height, width].map(|side| side + 2 * PADDING);
        let halves = size.map(|side| side / 2);
        let lines = |[height, width]: [usize; 2], backwards| [width, height].map(|n| Line::new(n, backwards));
        let wavelets = |scale| (0..ORIENTATIONS).map(|k| filters::wavelet(scale, k, size)).collect();
        Ok(Self {
            shape,
            level,
            fine: wavelets(0),
            coarse: wavelets(1),
            whole: size.map(|side| filters::means(side, 1)),
            half: size.map(|side| filters::means(side, 2)),
            forwards: lines(size, false),
            backwards: lines(size, true),
            half_backwards: lines(halves, true),
        })
    }

    /// The shape of the result.
    pub fn features(&self) -> [usize; 3] {
        let [height, width, channels] = self.shape;
        [height / 4, width / 4, CHANNELS * channels]
    }

    /// Transforms images (rows of pixels of channels, one image after the other) into `out`, in the same
    /// layout: channel 81·colour + i is kymatio's i-th of that colour.
    ///
    /// # Panics
    /// If the slices do not hold equally many images of their shapes.
    pub fn transform(&self, images: &[f32], out: &mut [f32]) {
        let [length, features] = [self.shape, self.features()].map(|shape| shape.iter().product::<usize>());
        assert_eq!(images.len() % length, 0, "whole images");
        assert_eq!(images.len() / length, out.len() / features, "room for their transforms");
        let mut room = self.room();
        for (images, out) in images.chunks(LANES * length).zip(out.chunks_mut(LANES * features)) {
            for colour in 0..self.shape[2] {
                self.pad(images, colour, &mut room.image);
                self.planes(&mut room, &mut |channel, means| {
                    let channel = colour * CHANNELS + channel;
                    let channels = CHANNELS * self.shape[2];
                    for (lane, out) in out.chunks_exact_mut(features).enumerate() {
                        for (place, mean) in means.iter().enumerate() {
                            out[place * channels + channel] = mean[lane];
                        }
                    }
                });
            }
        }
    }

    fn size(&self) -> [usize; 2] {
        [self.shape[0] + 2 * PADDING, self.shape[1] + 2 * PADDING]
    }

    fn room(&self) -> Room {
        let whole = self.size().iter().product();
        Room {
            image: vec![ZERO; whole],
            response: vec![ZERO; whole],
            moduli: [(); 2].map(|()| vec![[0.0; LANES]; whole]),
            spectra: [(); 2].map(|()| vec![ZERO; whole]),
            half: vec![ZERO; whole / 4],
            half_modulus: vec![[0.0; LANES]; whole / 4],
            means: vec![[0.0; LANES]; self.shape[0] * self.shape[1] / 16],
        }
    }

    /// One colour of at most sixteen images, reflected at the edges; lanes without an image are black.
    fn pad(&self, images: &[f32], colour: usize, to: &mut [Complex]) {
        let [height, width, colours] = self.shape;
        let [_, padded] = self.size();
        // The edge pixel is not repeated.
        let reflected = |at: usize, length: usize| {
            let at = at.abs_diff(PADDING);
            if at >= length { 2 * (length - 1) - at } else { at }
        };
        to.fill(ZERO);
        for (lane, image) in images.chunks_exact(height * width * colours).enumerate() {
            for (y, row) in to.chunks_exact_mut(padded).enumerate() {
                let from = &image[reflected(y, height) * width * colours..];
                for (x, number) in row.iter_mut().enumerate() {
                    number[0][lane] = from[reflected(x, width) * colours + colour];
                }
            }
        }
    }

    /// The channels of sixteen planes, each handed to `put`.
    fn planes(&self, room: &mut Room, put: &mut dyn FnMut(usize, &[Lane])) {
        let (level, size) = (self.level, self.size());
        let halves = size.map(|side| side / 2);
        let [rows, columns] = &self.whole;
        for (modulus, number) in room.moduli[0].iter_mut().zip(&room.image) {
            *modulus = number[0];
        }
        scatter::means(level, &room.moduli[0], size, rows, columns, &mut room.means);
        put(0, &room.means);
        transform(level, &self.forwards[0], &self.forwards[1], &mut room.image);
        let coarse = |spectrum: &[Complex],
                      first: usize,
                      half: &mut [Complex],
                      modulus: &mut [Lane],
                      means: &mut [Lane],
                      put: &mut dyn FnMut(usize, &[Lane])| {
            for (k, wavelet) in self.coarse.iter().enumerate() {
                scatter::folded(level, spectrum, wavelet, size, half);
                transform(level, &self.half_backwards[0], &self.half_backwards[1], half);
                scatter::modulus(level, half, modulus);
                scatter::means(level, modulus, halves, &self.half[0], &self.half[1], means);
                put(first + k, means);
            }
        };
        let Room { image, response, moduli, spectra, half, half_modulus, means } = room;
        coarse(image, 1 + ORIENTATIONS, half, half_modulus, means, put);
        // Two at a time: two real planes are one complex plane.
        for k in (0..ORIENTATIONS).step_by(2) {
            for (other, modulus) in moduli.iter_mut().enumerate() {
                scatter::product(level, image, &self.fine[k + other], response);
                transform(level, &self.backwards[0], &self.backwards[1], response);
                scatter::modulus(level, response, modulus);
                scatter::means(level, modulus, size, rows, columns, means);
                put(1 + k + other, means);
            }
            for ((both, first), second) in response.iter_mut().zip(&moduli[0]).zip(&moduli[1]) {
                *both = [*first, *second];
            }
            transform(level, &self.forwards[0], &self.forwards[1], response);
            let [first, second] = &mut *spectra;
            scatter::apart(level, response, size, first, second);
            for (other, spectrum) in spectra.iter().enumerate() {
                let channel = 1 + (2 + k + other) * ORIENTATIONS;
                coarse(spectrum, channel, half, half_modulus, means, put);
            }
        }
    }
}
