//! The factors of the moment function M(z) = E_P[e^{zY}] of a whole run.

use super::line::Line;
use super::round::Shape;
use super::sums::{Parts, tilted};
use crate::error::PrivacyError;

/// A part of the run whose losses are independent of the rest, repeated `times` times.
#[derive(Clone, Debug)]
pub(crate) struct Factor {
    pub kind: Kind,
    pub times: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// N(µ²/2, µ²): M(z) = e^{µ² z(z+1)/2}. Holds µ².
    Gaussian(f64),
    /// Adversary A₁: with probability q the round (or epoch) is G_µ, and A₁ knows which: M(z) = Σ
    /// q·e^{µ² z(z+1)/2}. Lists (µ², q) with µ > 0, and Pr[µ = 0].
    Known { parts: Vec<(f64, f64)>, untouched: f64, relative_error: f64 },
    /// Adversary A₀.
    Round { shape: Shape, relative_error: f64 },
}

/// ln M and the mean and variance of the loss under the tilted law, at a real c.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cumulants {
    pub ln_m: f64,
    pub mean: f64,
    pub variance: f64,
    /// Bound on the error of `ln_m`.
    pub error: f64,
}

impl Cumulants {
    /// Those of a tilt that is out of reach.
    pub(crate) const INFINITE: Self =
        Self { ln_m: f64::INFINITY, mean: f64::INFINITY, variance: f64::INFINITY, error: f64::INFINITY };
}

impl std::ops::AddAssign for Cumulants {
    fn add_assign(&mut self, other: Self) {
        self.ln_m += other.ln_m;
        self.mean += other.mean;
        self.variance += other.variance;
        self.error += other.error;
    }
}

impl Factor {
    /// ln M(c)^times and its derivatives.
    pub(crate) fn cumulants(&self, c: f64) -> Cumulants {
        let one = match &self.kind {
            Kind::Gaussian(mu_square) => gaussian(*mu_square, c),
            Kind::Known { parts, relative_error, .. } => Parts::new(parts, *relative_error, c).1,
            Kind::Round { shape, relative_error } => {
                let shape = shape.pruned(c);
                if shape.count(c, 46.0) > 4.0 * MOST_NODES {
                    // Too far out to be of use; the searches turn back here.
                    return Cumulants::INFINITE;
                }
                let nodes = shape.nodes(c, 46.0);
                let mut result = tilted(&nodes.y, &nodes.ln_q, c).0;
                result.error += relative_error * power_of_weights(c) * result.ln_m.abs().min(1.0);
                result
            }
        };
        scaled(one, self.times as f64)
    }

    /// Components of the pair of one round.
    pub(crate) fn parts(&self) -> usize {
        match &self.kind {
            Kind::Gaussian(_) => 1,
            Kind::Known { parts, .. } | Kind::Round { shape: Shape::Halves { parts, .. }, .. } => parts.len(),
            Kind::Round { shape: Shape::Line { plus, minus }, .. } => plus.len() + minus.len(),
        }
    }

    /// The rounds of A₀ in it. The other kinds decay along a line like Gaussians.
    pub(crate) fn rounds(&self) -> u64 {
        match &self.kind {
            Kind::Round { .. } => self.times,
            Kind::Gaussian(_) | Kind::Known { .. } => 0,
        }
    }

    /// Roughly how many terms [`cumulants`](Self::cumulants) adds up.
    pub(crate) fn work(&self, c: f64) -> f64 {
        match &self.kind {
            Kind::Gaussian(_) => 1.0,
            Kind::Known { parts, .. } => parts.len() as f64,
            Kind::Round { shape, .. } => {
                let shape = shape.pruned(c);
                shape.cost_of_node() * shape.count(c, 46.0).min(4.0 * MOST_NODES)
            }
        }
    }

    /// The largest loss of all repetitions together; infinite where there is none.
    pub(crate) fn largest_loss(&self) -> f64 {
        match &self.kind {
            Kind::Round { shape, .. } => self.times as f64 * shape.largest_loss(),
            Kind::Gaussian(_) | Kind::Known { .. } => f64::INFINITY,
        }
    }

    /// Roughly how many nodes resolve one round up to the height t.
    pub(crate) fn nodes_for(&self, c: f64, t: f64) -> f64 {
        match &self.kind {
            Kind::Gaussian(_) | Kind::Known { .. } => 0.0,
            Kind::Round { shape, .. } => shape.pruned(c).count(c, 60.0 + 1.5 * t),
        }
    }

    /// Roughly what [`line`](Self::line) costs, in sines: nodes, and edges of the strip at a quarter of them.
    pub(crate) fn work_of_line(&self, c: f64, reach: f64) -> f64 {
        match &self.kind {
            Kind::Gaussian(_) | Kind::Known { .. } => self.work(c),
            Kind::Round { shape, .. } => {
                let shape = shape.pruned(c);
                4.0 * shape.cost_of_node() * shape.count(c, 60.0 + 1.5 * reach).min(MOST_NODES)
            }
        }
    }

    /// Roughly what the raised lines of a round cost, in sines, and how many nodes they have.
    pub(crate) fn work_of_decay(&self, c: f64, density: f64) -> (f64, f64) {
        match &self.kind {
            Kind::Gaussian(_) | Kind::Known { .. } => (0.0, 0.0),
            Kind::Round { shape, .. } => {
                let shape = shape.pruned(c);
                let nodes = shape.count(c, std::f64::consts::TAU * density);
                (3.0 * shape.cost_of_node() * nodes, nodes)
            }
        }
    }

    /// The factor on the line Re z = c, good for |Im z| ≤ `reach`, with a quadrature whose error
    /// after all repetitions has the logarithm `ln_quality`. Refused where even a coarse one would have too
    /// many nodes.
    pub(crate) fn line(&self, c: f64, reach: f64, ln_quality: f64) -> Result<Line, PrivacyError> {
        Line::new(self, c, reach, ln_quality)
    }
}

/// What a relative error of a round's weights is multiplied by, relative to ln M: the excess x of the likelihood
/// ratio has that error, and (1 + x)^{c+1} − 1 − (c + 1)x at most max(2, c + 1) times it; one more is that of the
/// shares of the half lines.
pub(super) fn power_of_weights(c: f64) -> f64 {
    3.0 + c.abs()
}

pub(super) fn scaled(one: Cumulants, times: f64) -> Cumulants {
    Cumulants {
        ln_m: one.ln_m * times,
        mean: one.mean * times,
        variance: one.variance * times,
        error: one.error * times,
    }
}

pub(super) fn gaussian(mu_square: f64, c: f64) -> Cumulants {
    let ln_m = 0.5 * mu_square * c * (c + 1.0);
    Cumulants {
        ln_m,
        mean: 0.5 * mu_square * (2.0 * c + 1.0),
        variance: mu_square,
        error: 4.0 * f64::EPSILON * ln_m.abs(),
    }
}

/// The most nodes of one round.
pub(super) const MOST_NODES: f64 = 60_000.0;
