//! A factor of the moment function on a vertical line: its values, their errors, and how fast they fall.

use std::ops::Range;

use num_complex::Complex64;

use super::factor::{Cumulants, Factor, Kind, MOST_NODES, gaussian, power_of_weights, scaled};
use super::layers::Layers;
use super::round::Shape;
use super::sums::{LANES, Parts, Turning, resolved, tilted};
use crate::error::PrivacyError;

/// Values that are turned from one to the next before a fresh one.
const TURNS: usize = 16;

/// A factor on the line Re z = c. Everything is relative to M(c): φ(t) = M(c + it)/M(c).
pub(crate) struct Line {
    times: f64,
    cumulants: Cumulants,
    body: Body,
}

enum Body {
    Gaussian { mu_square: f64, c: f64 },
    Known { parts: Parts, c: f64, untouched: f64, relative_error: f64 },
    Round(Box<RoundLine>),
}

struct RoundLine {
    /// Nodes: loss and tilted probability.
    y: Vec<f64>,
    w: Vec<f64>,
    atom: f64,
    /// Part of the law of Y.
    layers: Layers,
    /// Error of φ(t) from the quadrature at the largest t it was built for.
    quadrature: f64,
    /// The relative error of the round's weights, and so of Y, and that of the tilted probabilities.
    relative_error: f64,
    weights: f64,
    spread: f64,
}

impl RoundLine {
    /// The error of φ(t) on a stretch of values up to `end`, when Σ w·min(t·|y|, 2) there is `most`.
    fn error(&self, most: f64, t: f64) -> f64 {
        // Each value is turned from the one before, with six roundings at most of what lies between 0 and t.
        let size = most.min(t * self.spread);
        let roundings = (self.y.len() / LANES + LANES + 6 * TURNS + 32) as f64;
        (roundings * f64::EPSILON + self.weights) * size
            + (4.0 * f64::EPSILON + self.relative_error) * t * self.spread
            + self.quadrature
    }
}

impl Line {
    /// The factor on the line Re z = c, good for |Im z| ≤ `reach`, with a quadrature whose error
    /// after all repetitions has the logarithm `ln_quality`. Refused where even a coarse one would have too
    /// many nodes.
    pub(crate) fn new(factor: &Factor, c: f64, reach: f64, ln_quality: f64) -> Result<Self, PrivacyError> {
        let times = factor.times as f64;
        let (cumulants, body) = match &factor.kind {
            Kind::Gaussian(mu_square) => {
                (gaussian(*mu_square, c), Body::Gaussian { mu_square: *mu_square, c })
            }
            Kind::Known { parts, untouched, relative_error } => {
                let (parts, cumulants) = Parts::new(parts, *relative_error, c);
                let untouched = untouched * (-cumulants.ln_m).exp();
                let relative_error = *relative_error;
                (cumulants, Body::Known { parts, c, untouched, relative_error })
            }
            Kind::Round { shape, relative_error } => {
                let wanted = ln_quality - times.ln();
                let (cumulants, line) = round_line(shape, *relative_error, wanted, c, reach)?;
                (cumulants, Body::Round(Box::new(line)))
            }
        };
        Ok(Self { times, cumulants: scaled(cumulants, times), body })
    }

    /// Work, in sines, for `count` values on the line; a rotation costs about a tenth of a sine.
    pub(crate) fn work(&self, count: usize) -> f64 {
        let share = if matches!(self.body, Body::Round(_)) { 0.1 } else { 1.0 };
        share * (count * self.cost()) as f64
    }

    /// The operations for one value on the line.
    pub(crate) fn cost(&self) -> usize {
        match &self.body {
            Body::Gaussian { .. } => 1,
            Body::Known { parts, .. } => parts.squares.len(),
            Body::Round(line) => line.y.len(),
        }
    }

    pub(crate) fn cumulants(&self) -> Cumulants {
        self.cumulants
    }

    /// Adds (ln φ(t)^times, bound on its error) for t = (start + i)·step to `out[i]`.
    pub(crate) fn add_ln_phi(&self, start: usize, step: f64, out: &mut [(Complex64, f64)]) {
        let at = |i: usize| (start + i) as f64 * step;
        match &self.body {
            Body::Gaussian { mu_square, c } => {
                for (i, out) in out.iter_mut().enumerate() {
                    let t = at(i);
                    let value = 0.5 * mu_square * Complex64::new(-t * t, t * (2.0 * c + 1.0)) * self.times;
                    out.0 += value;
                    out.1 += 4.0 * f64::EPSILON * (value.re.abs() + value.im.abs());
                }
            }
            Body::Known { parts, c, relative_error, .. } => {
                let count = parts.squares.len();
                let rounding = (count / LANES + LANES + 32) as f64 * f64::EPSILON + relative_error;
                for (i, out) in out.iter_mut().enumerate() {
                    let [re, im, size] = parts.less_one(at(i), 2.0 * c + 1.0);
                    self.add_power(Complex64::new(re, im), rounding * size, out);
                }
            }
            Body::Round(line) => {
                for (block, out) in out.chunks_mut(TURNS).enumerate() {
                    let first = start + block * TURNS;
                    let end = (first + out.len()) as f64 * step;
                    let most = resolved(&line.y, &line.w, end);
                    let mut turning = Turning::new(&line.y, &line.w, first as f64 * step, step);
                    for (i, out) in out.iter_mut().enumerate() {
                        let [re, im] = turning.next();
                        let error = line.error(most, (first + i) as f64 * step);
                        self.add_power(Complex64::new(re, im), error, out);
                    }
                }
            }
        }
    }

    fn add_power(&self, excess: Complex64, error: f64, out: &mut (Complex64, f64)) {
        let norm = (1.0 + excess).norm().max(1e-300);
        let ln = Complex64::new(
            0.5 * (2.0 * excess.re + excess.norm_sqr()).max(-1.0).ln_1p(),
            excess.im.atan2(1.0 + excess.re),
        );
        let value = ln * self.times;
        out.0 += value;
        out.1 += self.times * error / norm + 4.0 * f64::EPSILON * value.norm();
    }

    /// The limit of φ(t)^times: the share of an atom at Y = 0, as a logarithm.
    pub(crate) fn ln_atom(&self) -> f64 {
        self.times
            * match &self.body {
                Body::Gaussian { .. } => f64::NEG_INFINITY,
                Body::Known { untouched, .. } => untouched.ln(),
                Body::Round(line) => line.atom.ln(),
            }
    }

    /// A bound on ln |φ(t')|^times for every t' ≥ t, decreasing in t.
    pub(crate) fn ln_envelope(&self, t: f64) -> f64 {
        let one = match &self.body {
            Body::Gaussian { mu_square, .. } => -0.5 * mu_square * t * t,
            Body::Known { parts, untouched, .. } => (untouched + parts.fallen(t)).ln(),
            Body::Round(line) => (1e-13 - line.layers.lost(t)).ln_1p(),
        };
        self.times * one.min(0.0)
    }
}

fn round_line(
    shape: &Shape,
    relative_error: f64,
    wanted: f64,
    c: f64,
    reach: f64,
) -> Result<(Cumulants, RoundLine), PrivacyError> {
    let shape = &shape.pruned(c);
    let mut resolution = 8.0 - wanted;
    if shape.count(c, resolution) > 4.0 * MOST_NODES {
        return Err(PrivacyError::NotCertified {
            what: "the privacy loss",
            why: "a quadrature of too many nodes".to_string(),
        });
    }
    let mut nodes = shape.nodes(c, resolution);
    let mut quadrature = f64::INFINITY;
    for attempt in 0..4 {
        let ln_m = tilted(&nodes.y, &nodes.ln_q, c).0.ln_m;
        // The height in the strip whose bound allows the widest step.
        let (mut best, mut needed) = (f64::INFINITY, f64::INFINITY);
        for share in [1.0, 0.6, 0.36, 0.2, 0.1, 0.05] {
            let along = shape.edge(c, share, resolution);
            let z = Complex64::new(c, reach);
            let edge = along.ln_modulus(z, false).max(along.ln_modulus(z, true));
            // The two subtracted integrals are those at z = −1 and z = 0.
            let base = along.ln_modulus(-Complex64::ONE, false).max(along.ln_modulus(Complex64::ZERO, false))
                + (2.0 + c.abs() + reach).ln();
            let excess = edge.max(base) + 4.0_f64.ln() - ln_m;
            best = best.min(excess - share * resolution);
            needed = needed.min((excess - wanted).max(1.0) / share);
            if best < wanted {
                break;
            }
        }
        quadrature = best.exp();
        if best < wanted || attempt == 3 || shape.count(c, needed) > MOST_NODES {
            break;
        }
        resolution = (1.03 * needed).max(1.2 * resolution);
        nodes = shape.nodes(c, resolution);
    }
    let (mut cumulants, w) = tilted(&nodes.y, &nodes.ln_q, c);
    let weights = relative_error * power_of_weights(c);
    cumulants.error += quadrature + weights * cumulants.ln_m.abs().min(1.0);
    let atom = (1.0 - w.iter().sum::<f64>()).max(0.0);
    let is_atomic = matches!(shape, Shape::Halves { .. });
    let ends = nodes.starts.iter().skip(1).copied().chain([w.len()]);
    let pieces: Vec<_> = nodes.starts.iter().copied().zip(ends).map(|(from, to)| from..to).collect();
    let density = |i: usize| (w[i].ln() - nodes.ln_width[i]).exp();
    let along = |part: &[Range<usize>]| -> Vec<(f64, f64)> {
        // A half line and its mirror image (the second of the pair) meet at Y = 0.
        let mirrored = part.get(1).cloned().unwrap_or(0..0).rev();
        mirrored.chain(part[0].clone()).map(|i| (nodes.y[i], density(i))).collect()
    };
    let stretches: Vec<_> = pieces.chunks(if is_atomic { 2 } else { 1 }).map(along).collect();
    let layers = Layers::new(&stretches);
    let spread = nodes.y.iter().zip(&w).map(|(y, w)| y.abs() * w).sum();
    let (y, w) = nodes.y.into_iter().zip(w).filter(|&(_, w)| w > 1e-28).unzip();
    let line = RoundLine {
        y,
        w,
        atom: if is_atomic { atom } else { 0.0 },
        layers,
        quadrature,
        relative_error,
        weights,
        spread,
    };
    Ok((cumulants, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The moment of a round moves with its weights, and with a high power of them where the tilt is large.
    #[test]
    fn the_error_of_the_weights_counts_as_often_as_they_enter() {
        const ERROR: f64 = 1e-6;
        let line = |by: f64, error: f64, c: f64, halves: bool| {
            let p = 1e-3 * (1.0 + by);
            let shape = match halves {
                true => Shape::Halves { parts: vec![(1.0, 1.0)], hit: p },
                false => Shape::Line { plus: vec![(0.0, 1.0 - p), (1.0, p)], minus: Vec::new() },
            };
            Line::new(&Factor { kind: Kind::Round { shape, relative_error: error }, times: 3 }, c, 3.0, -29.0)
        };
        for (c, halves) in [0.5, 3.0, 8.0, 20.0].into_iter().flat_map(|c| [(c, false), (c, true)]) {
            let stated = line(0.0, ERROR, c, halves).unwrap();
            let mut values = [(Complex64::ZERO, 0.0); 4];
            stated.add_ln_phi(0, 1.0, &mut values);
            for by in [-ERROR, ERROR] {
                let moved = line(by, 0.0, c, halves).unwrap();
                let off = (moved.cumulants().ln_m - stated.cumulants().ln_m).abs();
                assert!(off <= stated.cumulants().error, "{c} {halves}: {off:e} {:?}", stated.cumulants());
                let mut others = [(Complex64::ZERO, 0.0); 4];
                moved.add_ln_phi(0, 1.0, &mut others);
                for ((value, error), (other, _)) in values.iter().zip(others) {
                    let off = (value - other).norm();
                    assert!(off <= *error * (1.0 + 1e-3), "{c} {halves}: {off:e} {error:e}");
                }
            }
        }
    }
}
