//! Loops over numbers that the compiler vectorises: activations, norms, scaled sums.

use crate::level::versions;

/// tanh to 3 units in the last place, without a branch: the odd rational minimax approximation of
/// degree 13/6 on |x| ≤ 9, beyond which tanh rounds to ±1.
#[inline(always)]
fn tanh_of(x: f32) -> f32 {
    let x = x.clamp(-7.998_811_7, 7.998_811_7);
    let x2 = x * x;
    let p = -2.760_768_5e-16_f32;
    let p = p * x2 + 2.000_188e-13;
    let p = p * x2 - 8.604_672e-11;
    let p = p * x2 + 5.122_297_1e-8;
    let p = p * x2 + 1.485_722_4e-5;
    let p = p * x2 + 6.372_619_3e-4;
    let p = p * x2 + 4.893_525_e-3;
    let q = 1.198_258_4e-6_f32;
    let q = q * x2 + 1.185_347_1e-4;
    let q = q * x2 + 2.268_434_6e-3;
    let q = q * x2 + 4.893_525e-3;
    x * p / q
}

/// e^x by 2^n times a polynomial, relative error below 3e-7, for the range in which it is neither 0
/// nor infinite; clamped outside.
#[inline(always)]
pub(crate) fn exp_of(x: f32) -> f32 {
    let x = x.clamp(-87.0, 88.0);
    // Adding 1.5·2²³ rounds to the nearest integer and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let n = x * std::f32::consts::LOG2_E + ROUND;
    let bits = n.to_bits();
    let n = n - ROUND;
    let r = x - n * 0.693_359_4 + n * 2.121_944_4e-4;
    let p = 1.987_569_1e-4_f32;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 0.5;
    let p = p * r * r + r + 1.0;
    p * f32::from_bits(bits.wrapping_add(127).wrapping_shl(23))
}

/// x or 0, by a mask: a conditional would become a masked store, which is ten times as slow on some machines.
#[inline(always)]
fn kept(x: f32, keep: bool) -> f32 {
    f32::from_bits(x.to_bits() & u32::from(keep).wrapping_neg())
}

/// The constants of GELU's approximation by tanh: √(2/π), and the weight of x³ (Hendrycks and Gimpel, 2016).
const GELU: [f32; 2] = [0.797_884_6, 0.044_715];

/// 1/(1 + e⁻ˣ).
#[inline(always)]
fn sigmoid_of(x: f32) -> f32 {
    1.0 / (1.0 + exp_of(-x))
}

versions! {
    /// x ← tanh x.
    pub fn tanh(level: Level, x: &mut [f32]) {
        for x in x {
            *x = tanh_of(*x);
        }
    }

    /// x ← 1/(1 + e⁻ˣ).
    pub fn sigmoid(level: Level, x: &mut [f32]) {
        for x in x {
            *x = 1.0 / (1.0 + exp_of(-*x));
        }
    }

    /// x ← max(x, 0); a NaN stays one.
    pub fn relu(level: Level, x: &mut [f32]) {
        for x in x {
            *x = kept(*x, *x >= 0.0 || x.is_nan());
        }
    }

    /// x ← x where it is positive, slope·x elsewhere.
    pub fn leaky_relu(level: Level, slope: f32, x: &mut [f32]) {
        for x in x {
            *x *= if *x > 0.0 { 1.0 } else { slope };
        }
    }

    /// x ← x where it is positive, alpha·(eˣ − 1) elsewhere.
    pub fn elu(level: Level, alpha: f32, x: &mut [f32]) {
        for x in x {
            let (above, below) = (*x > 0.0, alpha * (exp_of(*x) - 1.0));
            *x = kept(*x, above) + kept(below, !above);
        }
    }

    /// x ← x/(1 + e⁻ˣ).
    pub fn silu(level: Level, x: &mut [f32]) {
        for x in x {
            *x *= sigmoid_of(*x);
        }
    }

    /// x ← x·(1 + tanh(√(2/π)(x + 0.044715x³)))/2.
    pub fn gelu(level: Level, x: &mut [f32]) {
        for x in x {
            *x *= sigmoid_of(2.0 * GELU[0] * (*x + GELU[1] * *x * *x * *x));
        }
    }

    /// d ← d·(1 − y²), the derivative of y = tanh x.
    pub fn tanh_backward(level: Level, y: &[f32], d: &mut [f32]) {
        for (d, y) in d.iter_mut().zip(y) {
            *d *= 1.0 - y * y;
        }
    }

    /// d ← d·y(1 − y), the derivative of y = sigmoid x.
    pub fn sigmoid_backward(level: Level, y: &[f32], d: &mut [f32]) {
        for (d, y) in d.iter_mut().zip(y) {
            *d *= y * (1.0 - y);
        }
    }

    /// d ← d where y = max(x, 0) is positive, 0 elsewhere.
    pub fn relu_backward(level: Level, y: &[f32], d: &mut [f32]) {
        for (d, y) in d.iter_mut().zip(y) {
            *d = kept(*d, *y > 0.0);
        }
    }

    /// d ← d times the derivative of y = leaky relu of x; the slope is not negative.
    pub fn leaky_relu_backward(level: Level, slope: f32, y: &[f32], d: &mut [f32]) {
        for (d, y) in d.iter_mut().zip(y) {
            *d *= if *y > 0.0 { 1.0 } else { slope };
        }
    }

    /// d ← d times the derivative of y = elu of x, which is y + alpha where y is not positive.
    pub fn elu_backward(level: Level, alpha: f32, y: &[f32], d: &mut [f32]) {
        for (d, y) in d.iter_mut().zip(y) {
            *d *= if *y > 0.0 { 1.0 } else { *y + alpha };
        }
    }

    /// d ← d times the derivative of silu at x.
    pub fn silu_backward(level: Level, x: &[f32], d: &mut [f32]) {
        for (d, x) in d.iter_mut().zip(x) {
            let s = sigmoid_of(*x);
            *d *= s + *x * s * (1.0 - s);
        }
    }

    /// d ← d times the derivative of gelu at x. Beyond ±10 it is 0 or 1 in single precision, and the powers
    /// of x would overflow.
    pub fn gelu_backward(level: Level, x: &[f32], d: &mut [f32]) {
        for (d, x) in d.iter_mut().zip(x) {
            let x = x.clamp(-10.0, 10.0);
            let s = sigmoid_of(2.0 * GELU[0] * (x + GELU[1] * x * x * x));
            *d *= s + x * s * (1.0 - s) * 2.0 * GELU[0] * (1.0 + 3.0 * GELU[1] * x * x);
        }
    }

    /// out ← a + b.
    pub fn sum(level: Level, a: &[f32], b: &[f32], out: &mut [f32]) {
        for (out, (a, b)) in out.iter_mut().zip(a.iter().zip(b)) {
            *out = a + b;
        }
    }

    /// sum ← sum + factor·x.
    pub fn add_scaled(level: Level, factor: f32, x: &[f32], sum: &mut [f32]) {
        for (sum, x) in sum.iter_mut().zip(x) {
            *sum += factor * x;
        }
    }

    /// sum ← sum + x.
    pub fn add(level: Level, x: &[f32], sum: &mut [f32]) {
        for (sum, x) in sum.iter_mut().zip(x) {
            *sum += x;
        }
    }

    /// out ← x·yᵀ, row by row.
    pub fn outer(level: Level, x: &[f32], y: &[f32], out: &mut [f32]) {
        for (row, x) in out.chunks_exact_mut(y.len()).zip(x) {
            for (out, y) in row.iter_mut().zip(y) {
                *out = x * y;
            }
        }
    }

    /// x ← factor·x.
    pub fn scale(level: Level, factor: f32, x: &mut [f32]) {
        for x in x {
            *x *= factor;
        }
    }

    /// Σ x². Runs of 1024 in single precision, 32 sums side by side, then in double precision: the
    /// relative error is below 64·2⁻²⁴ < 4e-6.
    pub fn square(level: Level, x: &[f32]) -> f64 {
        let mut total = 0.0;
        for run in x.chunks(1024) {
            let (whole, rest) = run.as_chunks::<32>();
            let mut sums = [0.0f32; 32];
            for x in whole {
                for (sum, x) in sums.iter_mut().zip(x) {
                    *sum += x * x;
                }
            }
            for (sum, x) in sums.iter_mut().zip(rest) {
                *sum += x * x;
            }
            total += f64::from(sums.iter().sum::<f32>());
        }
        total
    }

    /// sum\[c\] ← sum\[c\] + Σ over the pixels of an image, whose rows of `row` numbers begin `pitch` apart.
    pub fn add_columns(level: Level, x: &[f32], pitch: usize, row: usize, channels: usize, sum: &mut [f32]) {
        let sum = &mut sum[..channels];
        let rows = || x.chunks(pitch).map(|x| &x[..row]);
        // Eight pixels side by side: whole vectors, however few the channels.
        let mut wide = [0.0f32; 512];
        let Some(wide) = wide.get_mut(..8 * channels) else {
            for pixel in rows().flat_map(|x| x.chunks_exact(channels)) {
                for (sum, x) in sum.iter_mut().zip(pixel) {
                    *sum += x;
                }
            }
            return;
        };
        for pixels in rows().flat_map(|x| x.chunks(8 * channels)) {
            for (sum, x) in wide.iter_mut().zip(pixels) {
                *sum += x;
            }
        }
        for pixel in wide.chunks_exact(channels) {
            for (sum, x) in sum.iter_mut().zip(pixel) {
                *sum += x;
            }
        }
    }
}

/// The windows of a pooling layer: height, width and step in pixels, and the stride between rows of the
/// image.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    /// Rows of a window.
    pub height: usize,
    /// Columns of a window.
    pub width: usize,
    /// The distance between windows.
    pub step: usize,
    /// The distance between rows of the image, in numbers.
    pub pitch: usize,
    /// The numbers of a pixel.
    pub channels: usize,
}

versions! {
    /// One row of means: out\[x\]\[c\] = factor · Σ of the window at x. `row` is room for a row of the image.
    pub fn add_windows(
        level: Level,
        x: &[f32],
        windows: Windows,
        factor: f32,
        row: &mut [f32],
        out: &mut [f32],
    ) {
        let Windows { height, width, step, pitch, channels } = windows;
        let count = out.len() / channels;
        let row = &mut row[..((count - 1) * step + width) * channels];
        let (first, second) = (&x[..row.len()], &x[if height > 1 { pitch } else { 0 }..][..row.len()]);
        let both = if height > 1 { 1.0 } else { 0.0 };
        for (row, (first, second)) in row.iter_mut().zip(first.iter().zip(second)) {
            *row = first + both * second;
        }
        for i in 2..height {
            for (row, x) in row.iter_mut().zip(&x[i * pitch..]) {
                *row += x;
            }
        }
        for (i, out) in out.chunks_exact_mut(channels).enumerate() {
            let pixels = &row[i * step * channels..][..width * channels];
            if width == 2 {
                let (left, right) = pixels.split_at(channels);
                for (out, (left, right)) in out.iter_mut().zip(left.iter().zip(right)) {
                    *out = factor * (left + right);
                }
                continue;
            }
            out.fill(0.0);
            for pixel in pixels.chunks_exact(channels) {
                for (out, x) in out.iter_mut().zip(pixel) {
                    *out += factor * x;
                }
            }
        }
    }

    /// The transpose of [`add_windows`]: adds factor·d\[x\] to every pixel of the window at x.
    pub fn spread_windows(level: Level, d: &[f32], windows: Windows, factor: f32, x: &mut [f32]) {
        let Windows { height, width, step, pitch, channels } = windows;
        for (i, d) in d.chunks_exact(channels).enumerate() {
            for row in 0..height {
                for column in 0..width {
                    let pixel = &mut x[row * pitch + (i * step + column) * channels..][..channels];
                    for (x, d) in pixel.iter_mut().zip(d) {
                        *x += factor * d;
                    }
                }
            }
        }
    }

    /// [`spread_windows`] for windows that do not overlap: overwrites instead of adding.
    pub fn fill_windows(level: Level, d: &[f32], windows: Windows, factor: f32, x: &mut [f32]) {
        let Windows { height, width, pitch, channels, .. } = windows;
        for (pixels, d) in x.chunks_exact_mut(width * channels).zip(d.chunks_exact(channels)) {
            for pixel in pixels.chunks_exact_mut(channels) {
                for (x, d) in pixel.iter_mut().zip(d) {
                    *x = factor * d;
                }
            }
        }
        let length = d.len() * width;
        for row in 1..height {
            x.copy_within(..length, row * pitch);
        }
    }
}
