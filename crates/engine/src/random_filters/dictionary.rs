//! The filters: whitened patches of drawn images.
//!
//! Dead leaves, discs of random size and colour that cover each other, have the edges and the spectrum of
//! photographs (Ruderman 1997; Lee, Mumford and Huang 2001). What is drawn depends on a fixed seed and nothing
//! else, so the dictionary is public. Only additions, products, quotients and square roots are used, which
//! IEEE 754 defines to the bit: the filters are the same on every machine.

use std::sync::OnceLock;

use super::{COLOURS, FILTERS, LEAST_VARIANCE, SIDE};

/// The pixels on each side of a drawn image.
const CANVAS: usize = 32;
/// From the patch that the covariance sees to the next.
const STRIDE: usize = 2;
/// Radii have a density of 1/r³ from here to the side of the canvas: no scale is special.
const LEAST_RADIUS: f64 = 1.0;
/// How far a colour may be from the disc's grey.
const CHROMA: f64 = 0.15;
/// Added to the variance of the normalised patches in every direction before whitening divides by it.
const REGULARISATION: f64 = 0.1;
/// A patch with less variance, once normalised, is noise that was blown up, or nothing.
const STRUCTURE: f64 = 0.5;

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Draw(u64);

impl Draw {
    /// Uniform from 0 to 1, in steps of 2⁻⁵³.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }
}

/// The filters for images in so many colours, one after the other: each has [`SIDE`]² · `colours` numbers,
/// pixel by pixel, which sum to 0.
///
/// With C the covariance of normalised patches p, plus the regularisation, C^(−½)p is a whitened patch. The
/// product of a whitened patch with another one, q, divided by its length, is qᵀC⁻¹p / √(pᵀC⁻¹p): the filter
/// is the vector that q is multiplied with.
///
/// # Panics
/// If there are no colours, or more than the features are defined for.
pub fn filters(colours: usize) -> &'static [f64] {
    // It takes half a second for three colours, and both sets of a split ask for it.
    static MADE: [OnceLock<Vec<f64>>; COLOURS] = [const { OnceLock::new() }; COLOURS];
    MADE[colours - 1].get_or_init(|| made(colours))
}

fn made(colours: usize) -> Vec<f64> {
    let length = SIDE * SIDE * colours;
    let mut draw = Draw(0);
    let mut covariance = vec![0.0; length * length];
    let mut count = 0.0;
    let mut chosen = Vec::with_capacity(FILTERS * length);
    while chosen.len() < FILTERS * length {
        let canvas = leaves(colours, &mut draw);
        let last = CANVAS - SIDE;
        for y in (0..=last).step_by(STRIDE) {
            for x in (0..=last).step_by(STRIDE) {
                if let Some(patch) = patch(&canvas, colours, [y, x]) {
                    for (row, a) in covariance.chunks_exact_mut(length).zip(&patch) {
                        row.iter_mut().zip(&patch).for_each(|(sum, b)| *sum += a * b);
                    }
                    count += 1.0;
                }
            }
        }
        // One filter from each image, so that no two show the same disc.
        let at = [(); 2].map(|()| draw.between(0.0, (last + 1) as f64) as usize);
        chosen.extend(patch(&canvas, colours, at).into_iter().flatten());
    }
    covariance.iter_mut().for_each(|sum| *sum /= count);
    covariance.iter_mut().step_by(length + 1).for_each(|variance| *variance += REGULARISATION);
    let root = cholesky(covariance, length);
    for patch in chosen.chunks_exact_mut(length) {
        let original = patch.to_vec();
        solve(&root, length, patch);
        let square: f64 = original.iter().zip(&*patch).map(|(p, q)| p * q).sum();
        patch.iter_mut().for_each(|number| *number /= square.sqrt());
    }
    chosen
}

/// An image of discs, the first on top, slightly blurred as by a lens.
fn leaves(colours: usize, draw: &mut Draw) -> Vec<f64> {
    let side = CANVAS as f64;
    let mut canvas = vec![f64::NAN; CANVAS * CANVAS * colours];
    let mut bare = CANVAS * CANVAS;
    while bare > 0 {
        let [most, least] = [LEAST_RADIUS, side].map(|radius| 1.0 / (radius * radius));
        // The inverse of the distribution function of the radii.
        let radius = 1.0 / draw.between(most, least).sqrt();
        let [y, x] = [(); 2].map(|()| draw.between(-radius, side + radius));
        let grey = draw.unit();
        let colour: Vec<f64> = (0..colours)
            .map(|_| if colours == 1 { grey } else { grey + draw.between(-CHROMA, CHROMA) })
            .collect();
        for (at, pixel) in canvas.chunks_exact_mut(colours).enumerate() {
            let (down, right) = ((at / CANVAS) as f64 - y, (at % CANVAS) as f64 - x);
            if pixel[0].is_nan() && down * down + right * right < radius * radius {
                pixel.copy_from_slice(&colour);
                bare -= 1;
            }
        }
    }
    blurred(&canvas, colours)
}

/// The mean of an image and of its means with the weights ¼, ½, ¼ in both directions, reflected at the edges.
fn blurred(canvas: &[f64], colours: usize) -> Vec<f64> {
    let inside = |at: isize| if at < 0 { 1 } else { (at as usize).min(2 * (CANVAS - 1) - at as usize) };
    (0..canvas.len())
        .map(|at| {
            let (y, x, colour) = (at / colours / CANVAS, at / colours % CANVAS, at % colours);
            let mut sum = 0.0;
            for (down, weight) in [(-1, 0.25), (0, 0.5), (1, 0.25)] {
                for (right, other) in [(-1, 0.25), (0, 0.5), (1, 0.25)] {
                    let (y, x) = (inside(y as isize + down), inside(x as isize + right));
                    sum += weight * other * canvas[(y * CANVAS + x) * colours + colour];
                }
            }
            0.5 * canvas[at] + 0.5 * sum
        })
        .collect()
}

/// The normalised patch at a place, if it has structure.
fn patch(canvas: &[f64], colours: usize, [y, x]: [usize; 2]) -> Option<Vec<f64>> {
    let run = SIDE * colours;
    let mut patch = Vec::with_capacity(SIDE * run);
    (0..SIDE).for_each(|row| patch.extend(&canvas[((y + row) * CANVAS + x) * colours..][..run]));
    let count = patch.len() as f64;
    let mean = patch.iter().sum::<f64>() / count;
    patch.iter_mut().for_each(|pixel| *pixel -= mean);
    let variance = patch.iter().map(|pixel| pixel * pixel).sum::<f64>() / count;
    patch.iter_mut().for_each(|pixel| *pixel /= (variance + LEAST_VARIANCE).sqrt());
    (variance / (variance + LEAST_VARIANCE) > STRUCTURE).then_some(patch)
}

/// The lower triangle L of a positive definite matrix LLᵀ.
fn cholesky(mut matrix: Vec<f64>, n: usize) -> Vec<f64> {
    for i in 0..n {
        for j in 0..=i {
            let (row, other) = (&matrix[i * n..i * n + j], &matrix[j * n..j * n + j]);
            let rest = matrix[i * n + j] - row.iter().zip(other).map(|(a, b)| a * b).sum::<f64>();
            matrix[i * n + j] = if i == j { rest.sqrt() } else { rest / matrix[j * n + j] };
        }
    }
    matrix
}

/// x = (LLᵀ)⁻¹ x.
fn solve(root: &[f64], n: usize, x: &mut [f64]) {
    for i in 0..n {
        let known: f64 = (0..i).map(|j| root[i * n + j] * x[j]).sum();
        x[i] = (x[i] - known) / root[i * n + i];
    }
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|j| root[j * n + i] * x[j]).sum();
        x[i] = (x[i] - known) / root[i * n + i];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 2 × 2 by hand: LLᵀ = [[4, 2], [2, 5]], and [[4, 2], [2, 5]]·[1, 2] = [8, 12].
    #[test]
    fn a_linear_system_is_solved() {
        let root = cholesky(vec![4.0, 2.0, 2.0, 5.0], 2);
        assert_eq!([root[0], root[2], root[3]], [2.0, 1.0, 2.0]);
        let mut x = [8.0, 12.0];
        solve(&root, 2, &mut x);
        assert_eq!(x, [1.0, 2.0]);
    }

    #[test]
    fn filters_do_not_see_a_constant_and_no_two_are_alike() {
        for colours in [1, 3] {
            let filters = filters(colours);
            let length = SIDE * SIDE * colours;
            assert_eq!(filters.len(), FILTERS * length);
            let norm = |f: &[f64]| f.iter().map(|x| x * x).sum::<f64>().sqrt();
            for (i, filter) in filters.chunks_exact(length).enumerate() {
                assert!(filter.iter().sum::<f64>().abs() < 1e-9 && norm(filter) > 0.1, "{i}");
                for other in filters.chunks_exact(length).skip(i + 1) {
                    let product: f64 = filter.iter().zip(other).map(|(a, b)| a * b).sum();
                    assert!(product.abs() < 0.999 * norm(filter) * norm(other), "{i}");
                }
            }
        }
    }

    /// With the covariance of more images than the dictionary has seen, the variance of a product with a
    /// whitened patch is about 1: wᵀCw = 1 for w = C⁻¹p/√(pᵀC⁻¹p), less what the regularisation takes.
    #[test]
    fn products_have_a_variance_of_nearly_one() {
        let filters = filters(1);
        let mut draw = Draw(1);
        let mut squares = vec![0.0; FILTERS];
        let mut count = 0.0;
        for _ in 0..100 {
            let canvas = leaves(1, &mut draw);
            for patch in (0..=CANVAS - SIDE).step_by(3).filter_map(|at| patch(&canvas, 1, [at, at])) {
                for (square, filter) in squares.iter_mut().zip(filters.chunks_exact(SIDE * SIDE)) {
                    *square += filter.iter().zip(&patch).map(|(w, p)| w * p).sum::<f64>().powi(2);
                }
                count += 1.0;
            }
        }
        let mean = squares.iter().sum::<f64>() / count / FILTERS as f64;
        assert!((0.5..1.1).contains(&mean), "{mean}");
    }

    /// The same filters on every machine, to the bit: other ones would be other features under one name.
    #[test]
    fn the_dictionary_is_fixed() {
        for (colours, expected) in [(1, 14_260_971_238_755_692_801_u64), (3, 8_994_968_688_695_900_385)] {
            // FNV-1a.
            let hash = filters(colours).iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, weight| {
                (hash ^ weight.to_bits()).wrapping_mul(0x0000_0100_0000_01b3)
            });
            assert_eq!(hash, expected, "{colours}");
        }
    }
}
