//! Many points of a trade-off function at once.
//!
//! f(α) takes a root search; a point with its supporting line does not. So points are computed where the ends of an
//! asked α are still apart, and nowhere else, and every α is answered from the lines.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::thread;

use dpsgd::privacy::curve::CurvePoint;
use dpsgd::privacy::{Curve, PrivacyError};

/// No line is computed beyond this ε, or once the curve's α is smaller than can be of interest.
const STEEPEST: f64 = 60.0;
const SMALLEST: f64 = 1e-12;
/// The first step beyond the last point, and how much longer it is at ε = 1.
const STEP: (f64, f64) = (0.15, 0.25);
/// How close the ends shall be, relative to the attacker's detection rate.
const CLOSE: f64 = 5e-5;
/// Each pass goes one step further, or halves the stretches that need it and so quarters the distance of the ends.
const PASSES: usize = 64;
/// The most points that are kept for later questions.
const MOST: usize = 4096;
/// What the rounding of a line may add.
const ROUNDING: f64 = 4.0 * f64::EPSILON;

/// Points of a convex, symmetric curve with their supporting lines of slope −e^ε, by rising ε.
pub struct Envelope {
    points: Vec<CurvePoint>,
}

impl Envelope {
    /// The point of slope −1, the first.
    pub fn of(curve: &dyn Curve) -> Result<Self, PrivacyError> {
        Ok(Self { points: vec![curve.point(0.0)?] })
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
        let (lines, chain) = (self.lines(), self.chain());
        let (mut lower, mut upper) = (Vec::with_capacity(alphas.len()), Vec::with_capacity(alphas.len()));
        for &alpha in alphas {
            if alpha > 0.0 && alpha < 1.0 {
                let low = below(&lines, alpha);
                lower.push(low);
                upper.push(above(&chain, alpha).max(low));
            } else {
                // The ends are exact, and anything outside is refused with the text of a single α.
                let end = curve.beta(alpha)?;
                lower.push(end.lower);
                upper.push(end.upper);
            }
        }
        Ok((lower, upper))
    }

    /// Adds points until the ends of each α are close, or a point there could not bring them closer.
    fn refine(&mut self, curve: &dyn Curve, alphas: &[f64]) -> Result<(), PrivacyError> {
        for _ in 0..PASSES {
            let (lines, chain) = (self.lines(), self.chain());
            // In every stretch between two points, and beyond the last one, the α that lacks most.
            let mut wanted: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
            for &alpha in alphas {
                let Some((stretch, place)) = self.place(alpha) else { continue };
                let (low, high) = (below(&lines, alpha), above(&chain, alpha));
                let lacks = (high - low) / (CLOSE * (1.0 - low));
                if lacks > 1.0 && wanted.get(&stretch).is_none_or(|(most, _)| lacks > *most) {
                    wanted.insert(stretch, (lacks, place));
                }
            }
            let room = MOST.saturating_sub(self.points.len());
            let places: Vec<f64> = wanted.into_values().map(|(_, place)| place).take(room).collect();
            if places.is_empty() {
                break;
            }
            self.add(curve, &places)?;
        }
        Ok(())
    }

    /// Adds the points at some ε, computed on all threads.
    fn add(&mut self, curve: &dyn Curve, places: &[f64]) -> Result<(), PrivacyError> {
        let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let share = places.len().div_ceil(threads).max(8);
        let found = thread::scope(|scope| {
            let part = |part: &[f64]| part.iter().map(|&epsilon| curve.point(epsilon)).collect::<Vec<_>>();
            let handles: Vec<_> =
                places.chunks(share).map(|chunk| scope.spawn(move || part(chunk))).collect();
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

    /// Between which points the curve, or its mirror image, has this α, and at about which ε, or a step further where it
    /// is beyond the last; nothing where a line is there already.
    fn place(&self, alpha: f64) -> Option<(usize, f64)> {
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
        let left = self.points.get(next.checked_sub(1)?)?;
        let Some(right) = self.points.get(next) else {
            let further = left.epsilon + STEP.0 + STEP.1 * left.epsilon;
            return (left.alpha.upper > SMALLEST && further <= STEEPEST).then_some((next, further));
        };
        let logarithm = |point: &CurvePoint| rate(point).max(f64::MIN_POSITIVE).ln();
        let width = logarithm(left) - logarithm(right);
        let share = if width > 0.0 { (logarithm(left) - target.ln()) / width } else { 0.0 };
        let place = left.epsilon + share.clamp(0.0, 1.0) * (right.epsilon - left.epsilon);
        // A line as close as this is the same line.
        let near = |point: &CurvePoint| (point.epsilon - place).abs() < 1e-4;
        (!near(left) && !near(right)).then_some((next, place))
    }

    /// The supporting lines.
    fn lines(&self) -> Vec<Line> {
        let line = |point: &CurvePoint| Line {
            end: 1.0 - point.delta.upper,
            slope: point.epsilon.exp(),
            mirrored: (-point.epsilon).exp(),
        };
        self.points.iter().map(line).collect()
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

/// The line 1 − δ − e^ε·α, and its mirror image.
struct Line {
    end: f64,
    slope: f64,
    mirrored: f64,
}

/// The highest of the supporting lines over α.
fn below(lines: &[Line], alpha: f64) -> f64 {
    let over = |line: &Line| {
        let product = line.slope * alpha;
        let direct = line.end - product - ROUNDING * (1.0 + product);
        let mirrored = (line.end - alpha - ROUNDING) * line.mirrored;
        direct.max(mirrored * (1.0 - ROUNDING))
    };
    lines.iter().map(over).fold(0.0, f64::max)
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
