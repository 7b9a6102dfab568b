//! The wavelets and the local means of the scattering transform, on a periodic plane.

use std::f64::consts::{PI, TAU};

/// L, the number of orientations.
pub const ORIENTATIONS: usize = 8;
/// Reflected pixels on each side of an image: 2^J.
pub const PADDING: usize = 4;
/// σ of the Gaussian envelope of the finest wavelet, and of the mean over 2^J pixels.
const WIDTH: f64 = 0.8;
const MEAN_WIDTH: f64 = 1.6;
/// The centre frequency of the finest wavelet.
const FREQUENCY: f64 = 0.75 * PI;
/// The width of a wavelet across its crests over that along them: 4/L.
const SLANT: f64 = 0.5;
/// π in the height of the envelopes: kymatio's, so that the numbers are the same.
const ROUNDED_PI: f64 = 31_415.0 / 10_000.0;
/// Copies of the plane on each side over which an envelope is summed.
const COPIES: i64 = 2;
/// A spectrum below this part of its peak is zero: that is far below the rounding of single precision.
const NOTHING: f64 = 1e-9;

/// The envelope, and its product with the wave, on a periodic plane: the real part, the imaginary part, the
/// envelope.
fn morlet(scale: u32, angle: f64, [height, width]: [usize; 2]) -> Vec<[f64; 3]> {
    let stretch = f64::from(1_u32 << scale);
    let (sigma, frequency) = (WIDTH * stretch, FREQUENCY / stretch);
    let mut plane = vec![[0.0; 3]; height * width];
    for (at, point) in plane.iter_mut().enumerate() {
        for copy in 0..(2 * COPIES + 1) * (2 * COPIES + 1) {
            let (down, right) = (copy / (2 * COPIES + 1) - COPIES, copy % (2 * COPIES + 1) - COPIES);
            let y = (at / width) as f64 + (down * height as i64) as f64;
            let x = (at % width) as f64 + (right * width as i64) as f64;
            // The angle is measured from the direction of the columns.
            let (across, along) = (y * angle.cos() + x * angle.sin(), x * angle.cos() - y * angle.sin());
            let height = (-(across * across + SLANT * SLANT * along * along) / (2.0 * sigma * sigma)).exp()
                * SLANT
                / (2.0 * ROUNDED_PI * sigma * sigma);
            let (sine, cosine) = (frequency * across).sin_cos();
            *point = [point[0] + height * cosine, point[1] + height * sine, point[2] + height];
        }
    }
    plane
}

/// The spectrum of the wavelet of a scale and an orientation, Σψ = 0, over the number of pixels: transforms
/// do not divide. It is real, because ψ(−u) is the conjugate of ψ(u).
pub(super) fn wavelet(scale: u32, orientation: usize, size: [usize; 2]) -> Vec<f32> {
    let [height, width] = size;
    let angle = (3.0 - orientation as f64) * PI / ORIENTATIONS as f64;
    let plane = morlet(scale, angle, size);
    let sum = |part: usize| plane.iter().map(|point| point[part]).sum::<f64>();
    let mean = [sum(0) / sum(2), sum(1) / sum(2)];
    let psi: Vec<[f64; 2]> =
        plane.iter().map(|[re, im, envelope]| [re - mean[0] * envelope, im - mean[1] * envelope]).collect();
    // Along the rows, then along the columns.
    let mut rows = vec![[0.0; 2]; psi.len()];
    for (at, sum) in rows.iter_mut().enumerate() {
        let (y, k) = (at / width, at % width);
        for x in 0..width {
            let (sine, cosine) = (-TAU * (k * x % width) as f64 / width as f64).sin_cos();
            let [re, im] = psi[y * width + x];
            *sum = [sum[0] + re * cosine - im * sine, sum[1] + re * sine + im * cosine];
        }
    }
    let spectrum: Vec<f64> = (0..psi.len())
        .map(|at| {
            let (k, x) = (at / width, at % width);
            (0..height)
                .map(|y| {
                    let (sine, cosine) = (-TAU * (k * y % height) as f64 / height as f64).sin_cos();
                    rows[y * width + x][0] * cosine - rows[y * width + x][1] * sine
                })
                .sum()
        })
        .collect();
    let peak = spectrum.iter().fold(0.0_f64, |peak, value| peak.max(value.abs()));
    let pixels = (height * width) as f64;
    spectrum
        .into_iter()
        .map(|value| if value.abs() < NOTHING * peak { 0.0 } else { (value / pixels) as f32 })
        .collect()
}

/// The weights of the local means of a padded line of `side` pixels at a resolution of 1 or ½ (`step`): a row
/// for each fourth pixel of the image.
///
/// At half the resolution the Gaussian's spectrum is cut off at the highest frequency that is left.
pub(super) fn means(side: usize, step: usize) -> Vec<f32> {
    let bell = |u: f64| (-u * u / (2.0 * MEAN_WIDTH * MEAN_WIDTH)).exp();
    let periodic: Vec<f64> = (0..side)
        .map(|u| (-COPIES..=COPIES).map(|copy| bell(u as f64 + (copy * side as i64) as f64)).sum())
        .collect();
    let length = side / step;
    // The spectrum of the Gaussian at the frequencies of the line, lowest first: −n/2 < k ≤ n/2.
    let spectrum: Vec<f64> = (0..length)
        .map(|k| {
            let cosine = |u: usize| (TAU * (k.min(length - k) * u % side) as f64 / side as f64).cos();
            periodic.iter().enumerate().map(|(u, value)| value * cosine(u)).sum()
        })
        .collect();
    let height = 1.0 / (2.0 * ROUNDED_PI * MEAN_WIDTH * MEAN_WIDTH).sqrt();
    let kernel: Vec<f64> = (0..length)
        .map(|u| {
            let wave =
                |(k, value): (usize, &f64)| value * (TAU * (k * u % length) as f64 / length as f64).cos();
            height * spectrum.iter().enumerate().map(wave).sum::<f64>() / length as f64
        })
        .collect();
    let places = (side - 2 * PADDING) / 4;
    (0..places)
        .flat_map(|place| {
            let centre = (PADDING + 4 * place) / step;
            let kernel = &kernel;
            (0..length).map(move |u| kernel[(length + u - centre) % length] as f32)
        })
        .collect()
}
