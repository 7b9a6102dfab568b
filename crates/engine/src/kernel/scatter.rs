//! The loops of the scattering transform: |x ∗ ψ| at every or every second pixel, and local means.
//!
//! An image is reflected at its edges. For every second pixel its even and odd columns are kept apart, so that the
//! pixels that one point of a wavelet meets are neighbours in memory.

use super::versions;

/// Reflected pixels around an image, an even number: the longest wavelet reaches 11.
const BORDER: usize = 12;
/// Outputs side by side.
const BLOCK: usize = 16;

/// A wavelet, laid out for images of one size.
#[derive(Clone, Debug)]
pub struct Filter {
    taps: Vec<Tap>,
    /// From a row of outputs to the next, in the spread image.
    pitch: usize,
    /// Rows and columns of the outputs.
    size: [usize; 2],
}

#[derive(Clone, Copy, Debug)]
struct Tap {
    offset: usize,
    value: [f32; 2],
}

/// The numbers of a row, and of a plane of one parity, of an image that was spread with a step.
fn layout([height, width]: [usize; 2], step: usize) -> [usize; 2] {
    let row = (width + 2 * BORDER) / step + BLOCK;
    [row, row * (height + 2 * BORDER)]
}

impl Filter {
    /// For images of a height and width, at every pixel or every second one. A point is dy, dx and its value.
    ///
    /// # Panics
    /// If a point is further than the border is wide.
    pub fn new(points: &[(isize, isize, [f64; 2])], size: [usize; 2], step: usize) -> Self {
        let [row, plane] = layout(size, step);
        let tap = |&(dy, dx, value): &(isize, isize, [f64; 2])| {
            // A convolution: the point meets the pixel on the other side.
            let place = |d: isize| usize::try_from(BORDER as isize - d).expect("within the border");
            let (y, x) = (place(dy), place(dx));
            Tap { offset: x % step * plane + y * row + x / step, value: value.map(|part| part as f32) }
        };
        Self { taps: points.iter().map(tap).collect(), pitch: step * row, size: size.map(|n| n / step) }
    }
}

/// Room for an image with its reflected border.
#[derive(Clone, Debug)]
pub struct Spread {
    size: [usize; 2],
    values: Vec<f32>,
}

/// The place of a pixel that may lie beyond the edges; the edge pixel is not repeated.
fn reflected(at: isize, length: usize) -> usize {
    let last = length as isize - 1;
    let at = at.abs();
    (if at > last { 2 * last - at } else { at }) as usize
}

impl Spread {
    /// For images of a height and width.
    pub fn new(size: [usize; 2]) -> Self {
        let room = [1, 2].map(|step| step * layout(size, step)[1]).into_iter().max().unwrap_or(0);
        Self { size, values: vec![0.0; room] }
    }

    /// Takes an image, for filters with a step.
    ///
    /// # Panics
    /// If the image is not of the size, or narrower than the border.
    pub fn fill(&mut self, image: &[f32], step: usize) {
        let [height, width] = self.size;
        assert_eq!(image.len(), height * width, "an image of the size");
        let [row, plane] = layout(self.size, step);
        for y in 0..height + 2 * BORDER {
            let from = &image[reflected(y as isize - BORDER as isize, height) * width..][..width];
            for x in 0..width + 2 * BORDER {
                let value = from[reflected(x as isize - BORDER as isize, width)];
                self.values[x % step * plane + y * row + x / step] = value;
            }
        }
    }

    /// What was filled in.
    pub fn values(&self) -> &[f32] {
        &self.values
    }
}

versions! {
    /// out = |x ∗ ψ|.
    pub fn modulus(level: Level, filter: &Filter, spread: &[f32], out: &mut [f32]) {
        let [rows, columns] = filter.size;
        assert_eq!(out.len(), rows * columns, "room for the outputs");
        for y in (0..rows).step_by(2) {
            for x in (0..columns).step_by(BLOCK) {
                // Two rows at a time, enough sums to hide the time of an addition; apart, so that they stay in registers.
                let (mut re, mut im) = ([0.0_f32; BLOCK], [0.0_f32; BLOCK]);
                let (mut below_re, mut below_im) = ([0.0_f32; BLOCK], [0.0_f32; BLOCK]);
                let (start, below) = (y * filter.pitch + x, (y + 1) * filter.pitch + x);
                for tap in &filter.taps {
                    // Arrays, whose length the compiler knows: only so are these vectors.
                    let pixels = |start: usize| -> &[f32; BLOCK] {
                        spread[start + tap.offset..].first_chunk().expect("within the border")
                    };
                    let (pixels, pixels_below) = (pixels(start), pixels(below));
                    for i in 0..BLOCK {
                        re[i] += tap.value[0] * pixels[i];
                        im[i] += tap.value[1] * pixels[i];
                        below_re[i] += tap.value[0] * pixels_below[i];
                        below_im[i] += tap.value[1] * pixels_below[i];
                    }
                }
                for (row, (re, im)) in [(re, im), (below_re, below_im)].into_iter().enumerate() {
                    let at = (y + row) * columns + x;
                    let end = (at + BLOCK).min((y + row + 1) * columns);
                    for ((out, re), im) in out[at..end].iter_mut().zip(&re).zip(&im) {
                        *out = (re * re + im * im).sqrt();
                    }
                }
            }
        }
    }
}

/// The local means of an image, at every `step`th pixel: its convolution with a bell in both directions.
pub fn mean(image: &[f32], width: usize, bell: &[f64], step: usize) -> Vec<f32> {
    let height = image.len() / width;
    let reach = (bell.len() / 2) as isize;
    let bell: Vec<f32> = bell.iter().map(|weight| *weight as f32).collect();
    let mut rows = vec![0.0; height / step * width];
    for (y, row) in rows.chunks_exact_mut(width).enumerate() {
        for (k, weight) in bell.iter().enumerate() {
            let from = reflected((y * step) as isize + k as isize - reach, height) * width;
            for (sum, pixel) in row.iter_mut().zip(&image[from..from + width]) {
                *sum += weight * pixel;
            }
        }
    }
    let mut means = vec![0.0; height / step * (width / step)];
    for (row, means) in rows.chunks_exact(width).zip(means.chunks_exact_mut(width / step)) {
        for (x, mean) in means.iter_mut().enumerate() {
            let at = |k: usize| reflected((x * step) as isize + k as isize - reach, width);
            *mean = bell.iter().enumerate().map(|(k, weight)| weight * row[at(k)]).sum();
        }
    }
    means
}
