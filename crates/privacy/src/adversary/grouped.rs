//! Group privacy in trade-off form: 1 − (1−f)^{∘g} of the curve f of one differing sample.
//!
//! With F = 1 − f every line F(α) ≤ δ(ε) + e^ε·α may be used in every step, with a threshold ε of its own, so
//!
//!   F^{∘g}(α) ≤ Σ_j δ(ε_j)·e^{ε_{j+1} + … + ε_g} + e^{ε_1 + … + ε_g}·α     for all real ε_1, …, ε_g.
//!
//! The smallest such bound *is* the trade-off form (g equal steps are the lossy (ε, δ) form). So the steps are
//! found from an uncertified interpolation of f, and only δ at those steps is certified: an error of the
//! interpolation costs its square, never the guarantee.

use std::sync::OnceLock;

use super::envelope::Lines;
use crate::curve::{Curve, CurvePoint, check_delta, check_epsilon, mu_of};
use crate::error::{PrivacyError, require};
use crate::interval::Interval;
use crate::normal;

/// Points of the interpolation.
const POINTS: usize = 36;
/// δ at the last of them, and where that is out of reach.
const LAST_DELTAS: [f64; 2] = [1e-32, 1e-14];
/// Lines of f that the lines of the group are made of.
const LINES: usize = 256;
/// Starts that are compared for a guess of µ.
const STARTS: usize = 16;
/// The smallest δ for which ε of one sample is asked.
const SMALLEST_ROOM: f64 = 1e-190;
/// Steps of a bisection.
const HALVINGS: usize = 50;

/// The trade-off function 1 − (1−f)^{∘g}.
///
/// # Guarantee
/// If a run is f-DP for one differing sample, it is this for g (Dong, Roth, Su 2022, Thm 2.14; the steps are
/// proved above). The lower ends of ε and δ are those of the bound with the steps chosen, not of the run.
pub(super) struct Grouped {
    single: Box<dyn Curve>,
    g: usize,
    model: OnceLock<Result<Model, PrivacyError>>,
    lines: OnceLock<Result<Lines, PrivacyError>>,
}

/// f for one sample, interpolated; nothing is certified here.
///
/// With x(ε) = Φ⁻¹(α) at slope e^ε the interpolation is linear for a Gaussian. As f is symmetric, a step takes
/// x(ε) to −x(−ε).
struct Model {
    epsilon: Vec<f64>,
    /// Φ⁻¹(α) and Φ⁻¹(β) at each ε ≥ 0; α falls and β rises.
    alpha: Vec<f64>,
    beta: Vec<f64>,
    ln_delta: Vec<f64>,
}

/// The value at `at` of the broken line through (xs, ys), continued beyond both ends; xs rises.
fn interpolate(xs: &[f64], ys: &[f64], at: f64) -> f64 {
    let i = xs.partition_point(|&x| x <= at).clamp(1, xs.len() - 1);
    let share = (at - xs[i - 1]) / (xs[i] - xs[i - 1]);
    if share.is_finite() { ys[i - 1] + share * (ys[i] - ys[i - 1]) } else { ys[i] }
}

impl Model {
    fn new(single: &dyn Curve) -> Result<Self, PrivacyError> {
        let reach = |delta: f64| single.epsilon(delta).ok().map(|epsilon| epsilon.upper);
        let within = |last: &f64| *last > 0.0 && *last < 1e4;
        let Some(last) = LAST_DELTAS.iter().find_map(|&delta| reach(delta).filter(within)) else {
            return Err(PrivacyError::NotCertified {
                what: "group privacy",
                why: "the curve of one sample is not resolved".to_string(),
            });
        };
        let mut model =
            Self { epsilon: Vec::new(), alpha: Vec::new(), beta: Vec::new(), ln_delta: Vec::new() };
        for i in 0..=POINTS {
            // Denser near 0, where curves with an atom bend.
            let epsilon = last * (i as f64 / POINTS as f64).powf(1.5);
            let point = single.point(epsilon)?;
            let (alpha, delta) = (point.alpha.middle(), point.delta.middle());
            let x = normal::quantile(alpha.clamp(1e-290, 0.5));
            let y = -normal::quantile((delta + epsilon.exp() * alpha).clamp(1e-290, 1.0 - 1e-16));
            // Where the numbers are not resolved the interpolation passes over them.
            let falls = model.alpha.last().is_none_or(|&before| x < before);
            if falls && model.beta.last().is_none_or(|&before| y > before) && delta > 0.0 {
                model.epsilon.push(epsilon);
                model.alpha.push(x);
                model.beta.push(y);
                model.ln_delta.push(delta.ln());
            }
        }
        if model.epsilon.len() < 4 {
            return Err(PrivacyError::NotCertified {
                what: "group privacy",
                why: "the curve of one sample is not resolved".to_string(),
            });
        }
        Ok(model)
    }

    /// x(ε) for any real ε.
    fn at(&self, epsilon: f64) -> f64 {
        if epsilon >= 0.0 {
            interpolate(&self.epsilon, &self.alpha, epsilon)
        } else {
            interpolate(&self.epsilon, &self.beta, -epsilon)
        }
    }

    /// The ε with x(ε) = x; 0 on the stretch of slope −1.
    fn slope(&self, x: f64) -> f64 {
        if x < self.alpha[0] {
            let falling: Vec<f64> = self.alpha.iter().map(|a| -a).collect();
            interpolate(&falling, &self.epsilon, -x).max(0.0)
        } else if x > self.beta[0] {
            -interpolate(&self.beta, &self.epsilon, x).max(0.0)
        } else {
            0.0
        }
    }

    /// ln δ(ε) for ε ≥ 0: a broken line, and beyond its end a parabola. The tail of a Gaussian is one; a line
    /// would stay so far above it that the bound of many steps never falls to a small δ.
    fn ln_delta(&self, epsilon: f64) -> f64 {
        // There are at least four points.
        let last = self.epsilon.len() - 1;
        let [(e0, d0), (e1, d1), (e2, d2)] =
            [last - 2, last - 1, last].map(|i| (self.epsilon[i], self.ln_delta[i]));
        if epsilon <= e2 {
            return interpolate(&self.epsilon, &self.ln_delta, epsilon);
        }
        let (before, slope) = ((d1 - d0) / (e1 - e0), (d2 - d1) / (e2 - e1));
        // ln δ is concave where the curve is resolved.
        let bend = ((slope - before) / (e2 - e0)).min(0.0);
        d2 + (epsilon - e2) * (slope + bend * (epsilon - e1))
    }

    fn delta(&self, epsilon: f64) -> f64 {
        on_all_slopes(epsilon, |e| self.ln_delta(e).exp().min(1.0))
    }

    /// Φ⁻¹ of F at Φ(x), where the slope is e^ε.
    fn next(&self, x: f64, epsilon: f64) -> f64 {
        if x > self.alpha[0] && x < self.beta[0] {
            normal::quantile((normal::cdf(x) + self.ln_delta[0].exp()).min(1.0 - 1e-16))
        } else {
            -self.at(-epsilon)
        }
    }

    /// The slopes of g steps of which the first has slope e^`start`, the steepest.
    fn steps(&self, start: f64, g: usize) -> Vec<f64> {
        let mut steps = vec![start];
        let mut x = self.at(start);
        for _ in 1..g {
            let last = steps[steps.len() - 1];
            x = self.next(x, last);
            // A step cannot be steeper than the one before it.
            steps.push(self.slope(x).min(last).max(-700.0));
        }
        steps
    }

    /// The largest ε, up to a bound that doubles as needed, at which `holds`, which turns false once.
    fn last_start(&self, holds: impl Fn(f64) -> bool) -> f64 {
        let mut high = self.epsilon[self.epsilon.len() - 1];
        while holds(high) && high < 1e4 {
            high *= 2.0;
        }
        let mut low = 0.0;
        for _ in 0..HALVINGS {
            let middle = 0.5 * (low + high);
            if holds(middle) { low = middle } else { high = middle }
        }
        high
    }

    /// Steps whose sum is ε.
    fn steps_of_epsilon(&self, epsilon: f64, g: usize) -> Vec<f64> {
        let start = self.last_start(|start| self.steps(start, g).iter().sum::<f64>() < epsilon);
        let mut steps = self.steps(start, g);
        steps[0] += epsilon - steps.iter().sum::<f64>();
        steps
    }

    /// Steps whose bound is about δ.
    fn steps_of_delta(&self, delta: f64, g: usize) -> Vec<f64> {
        let bound = |start| self.steps(start, g).iter().fold(0.0, |sum, &e| self.delta(e) + e.exp() * sum);
        self.steps(self.last_start(|start| bound(start) > delta), g)
    }

    /// Φ⁻¹(1 − β) of the group at Φ⁻¹(α) = x.
    fn miss(&self, x: f64, g: usize) -> f64 {
        (0..g).fold(x, |x, _| self.next(x, self.slope(x)))
    }

    /// The false-alarm rate of the group at slope −1.
    fn alpha_at_slope_one(&self, g: usize) -> f64 {
        normal::cdf(self.at(self.steps_of_epsilon(0.0, g)[0]))
    }
}

/// δ of a symmetric curve at any real ε from its value at |ε|: δ(−ε) = 1 − e^{−ε} + e^{−ε}·δ(ε).
fn on_all_slopes(epsilon: f64, delta: impl Fn(f64) -> f64) -> f64 {
    if epsilon >= 0.0 { delta(epsilon) } else { -epsilon.exp_m1() + epsilon.exp() * delta(-epsilon) }
}

impl Grouped {
    pub(super) fn new(single: Box<dyn Curve>, g: u64) -> Self {
        Self { single, g: g as usize, model: OnceLock::new(), lines: OnceLock::new() }
    }

    fn model(&self) -> Result<&Model, PrivacyError> {
        self.model.get_or_init(|| Model::new(&*self.single)).as_ref().map_err(Clone::clone)
    }

    /// About the ε at δ, for deciding whether to ask for more.
    pub(super) fn guess_epsilon(&self, delta: f64) -> Result<f64, PrivacyError> {
        Ok(self.model()?.steps_of_delta(delta, self.g).iter().sum::<f64>().max(0.0))
    }

    /// About δ at ε.
    pub(super) fn guess_delta(&self, epsilon: f64) -> Result<f64, PrivacyError> {
        let model = self.model()?;
        let steps = model.steps_of_epsilon(epsilon, self.g);
        Ok(steps.iter().fold(0.0, |sum, &e| model.delta(e) + e.exp() * sum))
    }

    /// About β at α.
    pub(super) fn guess_beta(&self, alpha: f64) -> Result<f64, PrivacyError> {
        Ok(normal::cdf(-self.model()?.miss(normal::quantile(alpha), self.g)))
    }

    /// About µ for error rates above a smallest one.
    pub(super) fn guess_mu(&self, smallest: f64) -> Result<f64, PrivacyError> {
        let model = self.model()?;
        let first = normal::quantile(smallest);
        let last = normal::quantile(model.alpha_at_slope_one(self.g)).max(first);
        let starts = (0..=STARTS).map(|i| first + (last - first) * i as f64 / STARTS as f64);
        Ok(starts.map(|x| model.miss(x, self.g) - x).fold(0.0, f64::max))
    }

    /// Σ_j δ(ε_j)·e^{ε_{j+1} + …} with certified δ; the δ of the first step is given by `first`.
    fn bound(&self, steps: &[f64], first: Option<Interval>) -> Result<Interval, PrivacyError> {
        let mut sum = Interval::exact(0.0);
        for (j, &step) in steps.iter().enumerate() {
            let delta = match first {
                Some(first) if j == 0 => first,
                _ => self.single.delta(step.abs())?,
            };
            let factor = step.exp();
            // Four roundings a step, all terms positive.
            sum.lower = (on_all_slopes(step, |_| delta.lower) + factor * sum.lower) * (1.0 - 1e-15);
            sum.upper = (on_all_slopes(step, |_| delta.upper) + factor * sum.upper) * (1.0 + 1e-15);
        }
        Ok(sum)
    }

    /// The first step that keeps the bound at δ, given the others, and their sum.
    fn solved(&self, steps: &[f64], delta: f64) -> Result<Option<Interval>, PrivacyError> {
        let others = self.bound(steps, Some(Interval::exact(0.0)))?;
        let rest: f64 = steps[1..].iter().sum();
        let room = |others: f64| (delta * (1.0 - 1e-14) - others) * (-rest).exp();
        let (least, most) = (room(others.upper), room(others.lower));
        // The first step is the steepest; the bound below needs it to be at least 0.
        if !(least > 0.0 && least.is_finite() && steps[0] >= 0.0) {
            return Ok(None);
        }
        // A smaller room asks for more: half of everything is always enough.
        let of = |room: f64| self.single.epsilon(room.min(0.5));
        let (upper, lower) = if least >= SMALLEST_ROOM {
            (of(least)?.upper + rest, of(most)?.lower + rest)
        } else {
            let Some(first) = self.first_within(least, most, steps[0])? else { return Ok(None) };
            (first.upper + rest, first.lower + rest)
        };
        let rounding = 1e-15 * steps.iter().map(|e| e.abs()).sum::<f64>();
        Ok(Some(Interval { lower: (lower - rounding).max(0.0), upper: (upper + rounding).max(0.0) }))
    }

    /// The first step whose δ is certainly at most `least`, where that is below what can be solved for
    /// directly; below the lower end δ is certainly above `most`. None where no such step is found.
    fn first_within(&self, least: f64, most: f64, about: f64) -> Result<Option<Interval>, PrivacyError> {
        let mut enough = about.max(1e-3);
        while self.single.delta(enough)?.upper > least {
            if enough > 1e4 {
                return Ok(None);
            }
            enough *= 1.5;
        }
        // The two sides of where `above` turns false.
        let halved = |above: &dyn Fn(Interval) -> bool| -> Result<(f64, f64), PrivacyError> {
            let (mut low, mut high) = (0.0, enough);
            for _ in 0..HALVINGS {
                let middle = 0.5 * (low + high);
                if above(self.single.delta(middle)?) { low = middle } else { high = middle }
            }
            Ok((low, high))
        };
        let upper = halved(&|delta| delta.upper > least)?.1;
        let lower = halved(&|delta| delta.lower > most)?.0;
        Ok(Some(Interval { lower, upper }))
    }

    /// The lines of f, mirrored too, that the group's lines are composed of; the steepest first.
    fn single_lines(&self, model: &Model) -> Result<Vec<(f64, f64)>, PrivacyError> {
        let smallest = (1e-3 * model.alpha_at_slope_one(self.g)).clamp(1e-290, 1e-6);
        let (first, last) = (model.alpha[0], normal::quantile(smallest).min(model.alpha[0] - 0.1));
        let mut lines = Vec::with_capacity(2 * LINES + 1);
        for i in (0..=LINES).rev() {
            // Rounding may put the first one a little below 0.
            let epsilon = model.slope(first + (last - first) * i as f64 / LINES as f64).max(0.0);
            lines.push((epsilon, self.single.delta(epsilon)?.upper.min(1.0)));
        }
        let mirrored = lines.iter().rev().filter(|line| line.0 > 0.0);
        let mirrored: Vec<(f64, f64)> =
            mirrored.map(|&(e, d)| (-e, on_all_slopes(-e, |_| d) * (1.0 + 1e-15))).collect();
        lines.extend(mirrored);
        Ok(lines)
    }

    fn lines(&self) -> Result<&Lines, PrivacyError> {
        let build = || {
            let single = self.single_lines(self.model()?)?;
            let value = |line: &(f64, f64), alpha: f64| line.1 + line.0.exp() * alpha;
            let mut composed = vec![(0.0, 1.0)];
            for i in 0..single.len() - 1 {
                // Where line i gives way to the next one; any α yields valid lines.
                let ((e0, d0), (e1, d1)) = (single[i], single[i + 1]);
                let mut alpha = ((d1 - d0) / (e0.exp() - e1.exp())).clamp(0.0, 1.0);
                let (mut at, mut epsilon, mut delta) = (i, 0.0, 0.0);
                for _ in 0..self.g {
                    while at + 1 < single.len() && value(&single[at + 1], alpha) <= value(&single[at], alpha)
                    {
                        at += 1;
                    }
                    epsilon += single[at].0;
                    delta = value(&single[at], delta) * (1.0 + 1e-15);
                    alpha = value(&single[at], alpha);
                }
                if (0.0..600.0).contains(&epsilon) && delta < 1.0 {
                    // The sum is rounded; a line that is a little steeper is a bound as well.
                    composed.push((epsilon * (1.0 + 1e-14), delta));
                }
            }
            composed.sort_by(|a, b| a.0.total_cmp(&b.0));
            Ok(Lines::new(composed.into_iter()))
        };
        self.lines.get_or_init(build).as_ref().map_err(Clone::clone)
    }
}

impl Curve for Grouped {
    fn delta(&self, epsilon: f64) -> Result<Interval, PrivacyError> {
        check_epsilon(epsilon)?;
        let steps = self.model()?.steps_of_epsilon(epsilon * (1.0 - 1e-14), self.g);
        Ok(self.bound(&steps, None)?.clamp(0.0, 1.0))
    }

    fn point(&self, epsilon: f64) -> Result<CurvePoint, PrivacyError> {
        Ok(self.lines()?.point(epsilon))
    }

    fn epsilon(&self, delta: f64) -> Result<Interval, PrivacyError> {
        check_delta(delta)?;
        if self.delta(0.0)?.upper <= delta {
            return Ok(Interval::exact(0.0));
        }
        let model = self.model()?;
        let mut best: Option<Interval> = None;
        let mut aim = delta;
        for _ in 0..8 {
            let steps = model.steps_of_delta(aim, self.g);
            let bound = self.bound(&steps, None)?.upper;
            let before = best;
            if let Some(found) = self.solved(&steps, delta)? {
                best = Some(before.map_or(found, |known| known.min(found)));
            }
            if let (Some(before), Some(now)) = (before, best)
                && before.upper - now.upper <= 1e-7 * now.upper
            {
                break;
            }
            // What the certified bound of these steps says about the interpolation corrects its aim.
            let next = aim * (delta / bound).clamp(1e-30, 1e30);
            aim = if next.is_finite() { next.clamp(1e-280, 0.5) } else { 0.5 * aim };
        }
        best.ok_or_else(|| PrivacyError::NotCertified {
            what: "group privacy",
            why: "no steps keep the bound".to_string(),
        })
    }

    fn beta(&self, alpha: f64) -> Result<Interval, PrivacyError> {
        require((0.0..=1.0).contains(&alpha), "alpha", alpha, "between 0 and 1")?;
        Ok(Interval { lower: self.lines()?.beta(alpha), upper: 1.0 - alpha })
    }

    fn mu(&self, smallest: f64) -> Result<Interval, PrivacyError> {
        let mu = mu_of(&|e| self.point(e), smallest)?;
        Ok(Interval { lower: 0.0, upper: mu.upper })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{gaussian, group};

    /// G_µ in closed form.
    struct Gaussian(f64);

    impl Curve for Gaussian {
        fn delta(&self, epsilon: f64) -> Result<Interval, PrivacyError> {
            let delta = gaussian::delta(self.0, epsilon);
            Ok(Interval::around(delta, gaussian::delta_relative_error(self.0, epsilon) * delta))
        }

        fn point(&self, epsilon: f64) -> Result<CurvePoint, PrivacyError> {
            let rate = |x: f64| Interval::around(normal::cdf(x), 1e-13 * normal::cdf(x));
            let alpha = rate(-epsilon / self.0 - 0.5 * self.0);
            let beta = rate(epsilon / self.0 - 0.5 * self.0);
            Ok(CurvePoint { epsilon, delta: self.delta(epsilon)?, alpha, beta })
        }
    }

    /// g samples of a Gaussian are G_{gµ} exactly.
    #[test]
    fn a_group_under_a_gaussian_is_a_gaussian() {
        for (mu, g) in [(0.01, 2), (0.1, 7), (0.4, 3), (0.05, 64), (0.3, 64), (0.02, 512), (1.5, 4)] {
            let grouped = Grouped::new(Box::new(Gaussian(mu)), g);
            let whole = g as f64 * mu;
            for delta in [1e-2, 1e-5, 1e-10, 1e-30] {
                let (got, exact) = (grouped.epsilon(delta).unwrap(), gaussian::epsilon(whole, delta));
                assert!(got.upper >= exact * (1.0 - 1e-9), "{mu} {g} {delta}: {got:?} {exact}");
                // The steps come from an interpolation: up to 2.3 % is lost for many samples.
                assert!(got.upper <= exact * (1.0 + 3e-2) + 1e-9, "{mu} {g} {delta}: {got:?} {exact}");
                assert!(got.width() < 1e-6 * got.upper + 1e-12, "{mu} {g} {delta}: {got:?}");
                let guess = grouped.guess_epsilon(delta).unwrap();
                assert!((guess - exact).abs() < 0.05 * exact + 1e-6, "{mu} {g} {delta}: {guess} {exact}");
            }
            for epsilon in [0.0, 0.3 * whole, whole, 0.5 * whole * whole] {
                let (got, exact) = (grouped.delta(epsilon).unwrap(), gaussian::delta(whole, epsilon));
                assert!(got.upper >= exact * (1.0 - 1e-9), "{mu} {g} {epsilon}: {got:?} {exact}");
                assert!(got.upper <= exact * (1.0 + 1e-4) + 1e-12, "{mu} {g} {epsilon}: {got:?} {exact}");
            }
            for alpha in [1e-6, 1e-3, 0.05, 0.5, 0.9] {
                let (got, exact) = (grouped.beta(alpha).unwrap(), gaussian::tradeoff(whole, alpha));
                assert!(got.lower <= exact * (1.0 + 1e-9), "{mu} {g} {alpha}: {got:?} {exact}");
                assert!(
                    got.lower >= exact - 1e-3 * whole.min(1.0) * exact.max(alpha),
                    "{mu} {g} {alpha}: {got:?} {exact}"
                );
            }
            let (found, smallest) = grouped.mu_on_default_range().unwrap();
            assert!(found.upper >= whole * (1.0 - 1e-9), "{mu} {g}: {found:?}");
            // Sums of probabilities near 1 end at 1e-16: where the best attack errs less often than that, nothing is
            // promised about its errors.
            if normal::cdf(-0.5 * whole) < 1e-15 {
                assert_eq!(found.upper, f64::INFINITY);
                continue;
            }
            // 256 lines leave 5.3e-4 at most, for the smallest µ.
            assert!(found.upper <= whole * (1.0 + 6e-4), "{mu} {g}: {found:?}");
            assert!((grouped.guess_mu(smallest).unwrap() / whole - 1.0).abs() < 0.02);
        }
    }

    /// The slow oracle: f itself, iterated at one α after the other.
    #[test]
    fn the_steps_agree_with_iterating_the_curve() {
        use crate::mechanism::{Length, NoiseScale, PhaseConfig, RunConfig, Sampling};
        let single = || {
            let run = RunConfig::single(PhaseConfig {
                sampling: Sampling::Subsample { samples: 1000, groups: 20, group_size: 1 },
                length: Length::Rounds(500),
                noise: NoiseScale::Sigma(1.0),
                filtered: false,
            });
            crate::adversary::curve(&run.check().unwrap(), crate::Adversary::A0).unwrap()
        };
        for g in [2, 3, 5] {
            let (grouped, curve) = (Grouped::new(single(), g), single());
            for alpha in [1e-5, 1e-3, 0.05, 0.3] {
                let (got, slow) = (grouped.beta(alpha).unwrap(), group::tradeoff(&*curve, g, alpha).unwrap());
                assert!(
                    got.lower <= slow.upper && got.lower >= slow.lower - 2e-3 * slow.lower,
                    "{g} {alpha}: {got:?} {slow:?}"
                );
            }
            for delta in [1e-3, 1e-6] {
                let epsilon = grouped.epsilon(delta).unwrap();
                // δ(ε) = sup_α F^{∘g}(α) − e^ε·α, on a dense grid from below; both ends, because 1 − f has few
                // digits where α is tiny.
                let (mut least, mut most) = (0.0_f64, 0.0_f64);
                for alpha in (0..600).map(|i| 10_f64.powf(-24.0 + 0.04 * f64::from(i))) {
                    let beta = group::tradeoff(&*curve, g, alpha).unwrap();
                    least = least.max(1.0 - beta.upper - epsilon.upper.exp() * alpha);
                    most = most.max(1.0 - beta.lower - epsilon.upper.exp() * alpha);
                }
                assert!(least <= delta * (1.0 + 1e-9), "{g} {delta}: {epsilon:?} {least}");
                assert!(most >= 0.97 * delta, "{g} {delta}: {epsilon:?} {most}");
                let equal = group::epsilon(&*curve, g, delta).unwrap();
                assert!(epsilon.upper <= equal.upper, "{g} {delta}: {epsilon:?} {equal:?}");
            }
        }
    }
}
