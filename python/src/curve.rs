//! Many points of a trade-off function at once.
//!
//! f(α) takes a root search; a point with its supporting line does not. So a few points are computed first, each
//! α is then given one more point, at about the place where the curve has that α, and answered from the lines.

use std::num::NonZeroUsize;
use std::thread;

use dpsgd::privacy::curve::CurvePoint;
use dpsgd::privacy::{Curve, PrivacyError};

/// No line is computed beyond this ε, or once the curve's α is smaller than can be of interest.
const STEEPEST: f64 = 60.0;
const SMALLEST: f64 = 1e-12;
/// The first step between coarse points, and how it grows.
const FIRST: (f64, f64) = (0.15, 1.25);
/// The most points that are kept for later questions.
const MOST: usize = 4096;
/// What the rounding of a line may add.
const ROUNDING: f64 = 4.0 * f64::EPSILON;

/// Points of a convex, symmetric curve with their supporting lines of slope −e^ε, by rising ε.
pub struct Envelope {
    points: Vec<CurvePoint>,
}

impl Envelope {
    /// The coarse points.
    pub fn of(curve: &dyn Curve) -> Result<Self, PrivacyError> {
        let first = curve.point(0.0)?;
        let (mut step, growth) = FIRST;
        let (mut last, mut points) = (first, vec![first]);
        while last.alpha.upper > SMALLEST && last.epsilon + step <= STEEPEST {
            last = curve.point(last.epsilon + step)?;
            points.push(last);
            step *= growth;
        }
        Ok(Self { points })
    }

    /// Intervals of f at many α.
    ///
    /// # Guarantee
    /// Each lower end is at most f(α): it is the value of a supporting line 1 − δ(ε) − e^ε·α of the curve or of
    /// its mirror image, with δ's certified upper end, and every supporting line lies below the curve. Each upper
    /// end is at least f(α): the curve is convex and passes through its points, so it lies below the chord of any
    /// two of them. Where the lines are placed changes how close the ends are, never whether they hold.
    pub fn betas(&mut self, curve: &dyn Curve, alphas: &[f64]) -> Result<(Vec<f64>, Vec<f64>), PrivacyError> {
        self.refine(curve, alphas)?;
        let (mut lower, mut upper) = (Vec::with_capacity(alphas.len()), Vec::with_capacity(alphas.len()));
        let chain = self.chain();
        for &alpha in alphas {
            if alpha > 0.0 && alpha < 1.0 {
                let below = self.below(alpha);
                lower.push(below);
                upper.push(above(&chain, alpha).max(below));
            } else {
                // The ends are exact, and anything outside is refused with the text of a single α.
                let end = curve.beta(alpha)?;
                lower.push(end.lower);
                upper.push(end.upper);
            }
        }
        Ok((lower, upper))
    }

    /// Adds a point for each α, on all threads.
    fn refine(&mut self, curve: &dyn Curve, alphas: &[f64]) -> Result<(), PrivacyError> {
        let wanted: Vec<f64> = alphas.iter().filter_map(|&alpha| self.place(alpha)).collect();
        let room = MOST.saturating_sub(self.points.len());
        let wanted = &wanted[..wanted.len().min(room)];
        if wanted.is_empty() {
            return Ok(());
        }
        let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let share = wanted.len().div_ceil(threads).max(8);
        let found = thread::scope(|scope| {
            let part = |part: &[f64]| part.iter().map(|&epsilon| curve.point(epsilon)).collect::<Vec<_>>();
            let handles: Vec<_> =
                wanted.chunks(share).map(|chunk| scope.spawn(move || part(chunk))).collect();
            handles
                .into_iter()
                .flat_map(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect::<Result<Vec<_>, _>>()
        })?;
        self.points.extend(found);
        self.points.sort_by(|a, b| a.epsilon.total_cmp(&b.epsilon));
        self.points.dedup_by(|a, b| a.epsilon == b.epsilon);
        Ok(())
    }

    /// About the ε at which the curve, or its mirror image, has this α; nothing where a line is there already.
    fn place(&self, alpha: f64) -> Option<f64> {
        let zero = &self.points[0];
        if !(alpha > 0.0 && alpha < 1.0) {
            return None;
        }
        // Both rates fall with ε and are interpolated on a logarithmic scale.
        let (target, rate): (f64, fn(&CurvePoint) -> f64) = if alpha < zero.alpha.middle() {
            (alpha, |point| point.alpha.middle())
        } else if alpha > zero.beta.middle() {
            (1.0 - alpha, |point| 1.0 - point.beta.middle())
        } else {
            return None;
        };
        let next = self.points.partition_point(|point| rate(point) > target);
        let (right, left) = (self.points.get(next)?, self.points.get(next.checked_sub(1)?)?);
        let logarithm = |point: &CurvePoint| rate(point).max(f64::MIN_POSITIVE).ln();
        let width = logarithm(left) - logarithm(right);
        let share = if width > 0.0 { (logarithm(left) - target.ln()) / width } else { 0.0 };
        let place = left.epsilon + share.clamp(0.0, 1.0) * (right.epsilon - left.epsilon);
        // A line as close as this is the same line.
        let near = |point: &CurvePoint| (point.epsilon - place).abs() < 1e-4;
        (!near(left) && !near(right)).then_some(place)
    }

    /// The highest of the supporting lines. They belong to a convex function, so along the points the value at α
    /// rises and then falls.
    fn below(&self, alpha: f64) -> f64 {
        let line = |point: &CurvePoint| {
            let product = point.epsilon.exp() * alpha;
            let direct = 1.0 - point.delta.upper - product - ROUNDING * (1.0 + product);
            let mirrored = (1.0 - point.delta.upper - alpha - ROUNDING) * (-point.epsilon).exp();
            direct.max(mirrored * (1.0 - ROUNDING))
        };
        self.points.iter().map(line).fold(0.0, f64::max)
    }

    /// Corners on or above the curve by rising α: from (0, 1) over the points and their mirror images to (1, 0).
    ///
    /// A point may lie anywhere in its two intervals; where both ends are upper ends, the falling curve is not
    /// above it.
    fn chain(&self) -> Vec<(f64, f64)> {
        let falling = self.points.iter().rev().map(|point| (point.alpha.upper, point.beta.upper));
        let mirrored = self.points.iter().map(|point| (point.beta.upper, point.alpha.upper));
        [(0.0, 1.0)].into_iter().chain(falling).chain(mirrored).chain([(1.0, 0.0)]).collect()
    }
}

/// The chord over α.
fn above(chain: &[(f64, f64)], alpha: f64) -> f64 {
    let mut left = chain[0];
    for &(x, y) in &chain[1..] {
        if x < left.0 {
            continue;
        }
        if alpha <= x {
            let share = if x > left.0 { (alpha - left.0) / (x - left.0) } else { 1.0 };
            return (left.1 + share * (y - left.1)).clamp(0.0, 1.0 - alpha);
        }
        left = (x, y);
    }
    1.0 - alpha
}
