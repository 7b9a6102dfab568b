//! The mean and the variance of every numeric channel, released once with Gaussian noise.

use crate::dataset::{Dataset, Inputs, scale};
use crate::error::{DataError, setting};
use crate::normalise::{Divisor, Normalisation, Private};

/// The sums are kept as multiples of 2⁻²⁰, so that adding them and the noise is exact.
const STEPS: f64 = (1_u64 << 20) as f64;

/// How much rounding a sample's moments to those multiples can add to the sensitivity, relative to it: 2⁻²⁰
/// per coordinate between two samples, so √(3k)·2⁻²⁰ in k channels, against at least √(5k)/2.
const ROUNDING: f64 = 2e-6;

/// The smallest standard deviation that is accepted, in units of the range from 0 to 1; noise can push a
/// variance below zero.
const LEAST_STD: f64 = 0.01;

/// How far presence and absence of a value are from 0 in the third sum of a table; see [`Release`].
const PRESENT: f64 = 0.8;

/// The largest µ that `RunConfig` composes, and the smallest whose noise still fits the sums.
const MU_RANGE: (f64, f64) = (1e-4, 1e3);

/// Constants for normalisation with what they cost.
///
/// # Guarantee
///
/// Let t = 2x − 1 ∈ [−1, 1] for every value x of a sample, clipped to 0 to 1. A sample's moments in a
/// channel are the pair (A, Q − ½), A the mean of t over the sample's pixels and Q the mean of t². The
/// moments v(x) of all k numeric channels are summed over the samples, N(0, τ²) is added to each of the
/// 2k sums, and everything else is post-processing.
///
/// In a table, where a value may be missing, there is a third moment: a value t that is there has the moments
/// (t, t² − ½, s), a missing one (0, 0, −s), with s = 0.8. The third sum says how many are there, so that the
/// mean and the variance are those of the values that are.
///
/// **Sensitivity.** (A, Q) is a convex combination of points (t, t²), |t| ≤ 1, and convex functions on a
/// convex hull are largest at such points.
///
/// *Substitution:* the sum moves by v(x) − v(x'), in one channel by at most the distance of two points
/// (t, t²), (u, u²). With a = |t − u| and b = |t + u| ≤ 2 − a its square is
/// a²(1 + b²) ≤ a²(1 + (2 − a)²) = 5a² − 4a³ + a⁴. The derivative 2a(5 − 6a + 2a²) is positive for a > 0, so
/// this is at most its value 4 at a = 2. Over k channels: **Δ = 2√k**, attained by a black and a white image.
/// In a table, a value and a missing one are √(t² + (t² − ½)² + 4s²) ≤ √(5/4 + 4s²) = 1.952 < 2 apart, so Δ
/// is the same.
///
/// *Adding or removing:* the sum moves by v(x), in one channel by at most the norm of (t, t² − ½), whose
/// square is t² + (t² − ½)² = t⁴ + ¼ ≤ 5/4. Over k channels: **Δ = √(5k)/2**, attained by a black image. In a
/// table the square is at most 5/4 + s² (a missing value has s²): **Δ = √(k(5/4 + s²))**.
///
/// With τ = Δ/µ the release is the Gaussian mechanism G_µ. Data sets that differ in g samples are a chain
/// of g neighbours, the sum moves by at most gΔ, and the release is G_{gµ}.
///
/// **The divisor.** Substitution leaves N alone, so dividing by N is post-processing; when samples are
/// added and removed N is private, and the divisor is a public constant.
///
/// **On a computer.** Every sample's moments are rounded to multiples of 2⁻²⁰, which adds less than 2e-6 Δ
/// to the sensitivity and is charged. The noise is a Gaussian rounded to the same multiples and added in
/// integers, so the result is the exact, rounded value of a Gaussian mechanism: no bits below the noise
/// depend on the data. The caller must see to it that the source of rounded Gaussians is exact and secret.
#[derive(Clone, Debug, PartialEq)]
pub struct Release {
    mean: Vec<f32>,
    std: Vec<f32>,
    mu: f64,
    sensitivity: f64,
    error: f64,
}

impl Release {
    /// The noised means of the numeric channels, from 0 to 1.
    pub fn mean(&self) -> &[f32] {
        &self.mean
    }

    /// The noised standard deviations of the numeric channels, at least 0.01; of images and features, also at
    /// least the deviation whose square is the noise of the variance.
    pub fn std(&self) -> &[f32] {
        &self.std
    }

    /// The constants, which are public from now on. A resumed run uses these and does not release anything
    /// again.
    pub fn constants(&self) -> Normalisation {
        Normalisation::Public { mean: self.mean.clone(), std: self.std.clone() }
    }

    /// µ for g differing samples: g times that of one. `RunConfig::releases` takes `mu(1)`.
    pub fn mu(&self, differing: u64) -> f64 {
        self.mu * differing as f64
    }

    /// Δ, the most that one differing sample can move the sums.
    pub fn sensitivity(&self) -> f64 {
        self.sensitivity
    }

    /// The standard deviation of the noise in a mean, a public number: the constants are useless unless it
    /// is small against the deviations.
    pub fn mean_error(&self) -> f64 {
        self.error
    }
}

/// The L2 sensitivity of the sums in `channels` channels, of a table or not. See [`Release`].
fn sensitivity(divisor: Divisor, channels: usize, table: bool) -> f64 {
    let channel = match divisor {
        Divisor::Samples => 2.0,
        Divisor::Expected(_) if table => (1.25 + PRESENT * PRESENT).sqrt(),
        Divisor::Expected(_) => 1.25_f64.sqrt(),
    };
    channel * (channels as f64).sqrt() * (1.0 + ROUNDING)
}

/// Releases the constants of the numeric channels. See [`Release`].
pub(crate) fn release(
    set: &Dataset,
    private: &Private,
    noise: &mut dyn FnMut(f64) -> f64,
) -> Result<Release, DataError> {
    let (smallest, largest) = MU_RANGE;
    if !(private.mu >= smallest && private.mu <= largest) {
        return setting(
            "normalisation µ",
            private.mu,
            format!("between {smallest} and {largest}"),
            "a smaller µ leaves only noise, a larger one hides nothing",
        );
    }
    let count = match private.divisor {
        Divisor::Samples => set.len() as f64,
        Divisor::Expected(count) if (1.0..=1e15).contains(&count) => count,
        Divisor::Expected(count) => {
            let why = "N is private when samples are added and removed; a public guess replaces it";
            return setting("expected samples", count, "between 1 and 1e15", why);
        }
    };
    let sums = moments(set);
    let each = if set.is_table() { 3 } else { 2 };
    let channels = sums.len() / each;
    let sensitivity = sensitivity(private.divisor, channels, set.is_table());
    let deviation = sensitivity / private.mu;
    let mut noised = Vec::with_capacity(sums.len());
    for sum in sums {
        let value = noise(deviation * STEPS);
        // A normal value beyond 100 does not occur in the lifetime of the universe.
        if !(value.abs() <= 100.0 * deviation * STEPS && value.fract() == 0.0) {
            return setting("noise", value, "a rounded normal value", "the source of noise is broken");
        }
        // |value| ≤ 100·Δ/1e-4 and |sum| ≤ N: the steps of both fit an i128 by far.
        noised.push((sum + value as i128) as f64 / STEPS / count);
    }
    let (mut mean, mut std) = (Vec::with_capacity(channels), Vec::with_capacity(channels));
    for sums in noised.chunks_exact(each) {
        // The share of values that are there, from ±s. At least 0.5 %: a smaller divisor would blow up the
        // noise.
        let share = sums.get(2).map_or(1.0, |sum| (0.5 + 0.5 * sum / PRESENT).clamp(0.005, 1.0));
        let average = (sums[0] / share).clamp(-1.0, 1.0);
        // A variance below its own noise is unknown. Dividing by less would blow up channels that are nearly
        // constant; a table's columns are few, and their noise is far below the smallest deviation.
        let known = if set.is_table() { 0.0 } else { deviation / count };
        let variance = (sums[1] / share + 0.5 - average * average).max(known);
        mean.push(((average + 1.0) / 2.0) as f32);
        std.push((variance.sqrt() / 2.0).clamp(LEAST_STD, 0.5) as f32);
    }
    Ok(Release { mean, std, mu: private.mu, sensitivity, error: deviation / count / 2.0 })
}

/// Σ v(x) in steps: for each numeric channel the sums of A and of Q − ½, and in a table of ±s.
fn moments(set: &Dataset) -> Vec<i128> {
    match set.inputs() {
        Inputs::Bytes(values) => sum(set, values, |value| f64::from(value) / 255.0),
        Inputs::Floats(values) => sum(set, values, |value| f64::from(value).clamp(0.0, 1.0)),
        Inputs::Halves(values) => {
            let [unit, zero] = scale(set.inputs()).map(f64::from);
            sum(set, values, |value| (f64::from(f32::from(value)) * unit + zero).clamp(0.0, 1.0))
        }
    }
}

fn sum<T: Copy>(set: &Dataset, values: &[T], unit: impl Fn(T) -> f64) -> Vec<i128> {
    let [height, width, channels] = set.shape();
    let pixels = (height * width) as f64;
    let mut sample = vec![(0.0, 0.0); channels];
    let mut sums = vec![(0_i128, 0_i128); channels];
    for (index, input) in values.chunks_exact(set.input_len()).enumerate() {
        sample.fill((0.0, 0.0));
        for pixel in input.chunks_exact(channels) {
            for ((first, second), value) in sample.iter_mut().zip(pixel) {
                let t = 2.0 * unit(*value) - 1.0;
                *first += t;
                *second += t * t;
            }
        }
        for (channel, (sum, (first, second))) in sums.iter_mut().zip(&sample).enumerate() {
            if set.is_missing(index, channel) {
                continue;
            }
            sum.0 += (first / pixels * STEPS).round() as i128;
            sum.1 += ((second / pixels - 0.5) * STEPS).round() as i128;
        }
    }
    let numeric = sums.into_iter().enumerate().zip(set.numeric()).filter(|(_, numeric)| **numeric);
    let sums = numeric.flat_map(|((channel, (first, second)), _)| {
        let third = set.is_table().then(|| presence(set, channel));
        [Some(first), Some(second), third].into_iter().flatten()
    });
    sums.collect()
}

/// The third sum of a channel of a table, in steps.
fn presence(set: &Dataset, channel: usize) -> i128 {
    let there = (0..set.len()).filter(|sample| !set.is_missing(*sample, channel)).count() as i128;
    let step = (PRESENT * STEPS).round() as i128;
    step * (2 * there - set.len() as i128)
}

#[cfg(test)]
mod tests;
