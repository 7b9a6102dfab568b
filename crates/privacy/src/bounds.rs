//! The paper's certificates around adversary A₁'s trade-off function f: f^L ≤ f ≤ f^U, with their
//! un-symmetrised hats (Theorems thm:main and thm:main2).
//!
//! f itself is computed exactly elsewhere (`adversary::mixture`). The certificates are the building
//! blocks of the paper's closed forms, show how well a single Gaussian approximates the mixture,
//! and check f by independent means. The tails l and u are the exact tails of the law of c, and the
//! best c^L and c^U are searched for at every α.

use crate::adversary;
use crate::error::{PrivacyError, require};
use crate::exposure::Law;
use crate::mechanism::Mechanism;
use crate::normal;

/// f_{ε,δ}(α) = max{0, 1 − δ − e^ε·α, e^{−ε}(1 − δ − α)}: the trade-off function of (ε, δ)-DP
/// (Wasserman, Zhou 2010; Dong, Roth, Su 2022, Prop. 2.5). The paper prints min instead of max.
///
/// ```
/// let beta = dpsgd_privacy::bounds::tradeoff_of(1.0, 1e-5, 0.05);
/// assert!((beta - 0.864_075_908_577).abs() < 1e-12);
/// ```
pub fn tradeoff_of(epsilon: f64, delta: f64, alpha: f64) -> f64 {
    // α = 0 is handled separately because e^ε may be infinite.
    let steep = if alpha == 0.0 { 1.0 - delta } else { 1.0 - delta - epsilon.exp() * alpha };
    let flat = (-epsilon).exp() * (1.0 - delta - alpha);
    steep.max(flat).max(0.0)
}

/// f̂^L(α) = G_µ(min{1, α + l}) for µ = c^L/σ and l ≥ Pr[c > c^L].
///
/// # Guarantee
/// Rounded down. f̂^L ≤ f: components beyond c^L are given up (miss rate 0), the others are at
/// least G_µ, so f(α) ≥ (1−l)·G_µ(α/(1−l)), and that is at least G_µ(α + l) by convexity and
/// G_µ(1) = 0. NaN unless 0 ≤ α ≤ 1.
pub fn f_lower_hat(mu: f64, l: f64, alpha: f64) -> f64 {
    Below::new(alpha).shifted(mu, l)
}

/// f^L = max{f̂^L, f̂^L⁻¹}: G_µ(α) − l left of its diagonal point β, G_µ(min{1, α + l}) right of it.
///
/// # Guarantee
/// Rounded down. f^L ≤ f, because f is symmetric. Convex and symmetric, with f^L(0) = 1 − l. The
/// larger of the two branches is taken, so β is never solved for. NaN unless 0 ≤ α ≤ 1.
pub fn f_lower(mu: f64, l: f64, alpha: f64) -> f64 {
    Below::new(alpha).symmetric(mu, l)
}

/// f̂^U(α) = u + (1−u)·G_µ(α) for µ = c^U/σ and u ≥ Pr[c < c^U].
///
/// # Guarantee
/// Rounded up. f ≤ f̂^U: an attack that never accuses below c^U and has false-alarm rate α above
/// misses with at most that probability. f̂^U(1) = u, so for u > 0 it is not a trade-off function,
/// although the paper calls it one: near α = 1 it exceeds 1 − α. NaN unless 0 ≤ α ≤ 1.
pub fn f_upper_hat(mu: f64, u: f64, alpha: f64) -> f64 {
    Above::new(alpha).raised(mu, u)
}

/// f^U = min{f̂^U, f̂^U⁻¹}**: f̂^U up to β₀ where its slope is −1, then the chord from (β₀, β₁)
/// to (β₁, β₀), then f̂^U⁻¹(α) = G_µ((α−u)/(1−u)).
///
/// # Guarantee
/// Rounded up (1 − α is rounded to nearest). f ≤ f^U: f is symmetric and convex, so it lies below
/// f̂^U, below its mirror image, and below any chord between the two. Convex, symmetric and at most 1 − α.
///
/// The paper's explicit pieces need only µ > 0 and u < 1. That the mirror image is the lower one
/// right of β₁ comes down to u + (1−u)·G_µ(u + (1−u)y) ≥ G_µ(y) wherever |G_µ'(y)| ≤ 1 − u: by the
/// tangent of G_µ at y the difference is at least
/// u·(1 − G_µ(y) − (1−u)(1−y)|G_µ'(y)|) ≥ u·(y − G_µ(y)), and y ≥ G_µ(y) where the slope is
/// flatter than −1. For µ = 0 or u = 1, where the paper divides by zero, the convex hull is 1 − α.
/// NaN unless 0 ≤ α ≤ 1.
pub fn f_upper(mu: f64, u: f64, alpha: f64) -> f64 {
    Above::new(alpha).symmetric(mu, u)
}

/// Larger than the errors of [`normal::quantile`], of c/σ and of their difference together: the
/// first is below 20 units of 2⁻⁵² near zero and relative to |x| in the tails.
fn slack(mu: f64, x: f64) -> f64 {
    (32.0 * (1.0 + x.abs()) + 8.0 * mu) * f64::EPSILON
}

/// Values of Gaussian trade-off functions at one α, rounded down.
struct Below {
    alpha: f64,
    /// Φ⁻¹(1 − α).
    x: f64,
}

impl Below {
    fn new(alpha: f64) -> Self {
        Self { alpha, x: -normal::quantile(alpha) }
    }

    /// Φ(x − µ).
    fn gaussian(mu: f64, x: f64) -> f64 {
        if x == f64::INFINITY && mu < f64::INFINITY {
            return 1.0;
        }
        if x == f64::NEG_INFINITY || mu == f64::INFINITY {
            return 0.0;
        }
        normal::cdf(x - mu - slack(mu, x)) * (1.0 - normal::RELATIVE_ERROR)
    }

    fn shifted(&self, mu: f64, l: f64) -> f64 {
        let sum = self.alpha + l;
        let x = if l == 0.0 || self.x.is_nan() {
            self.x
        } else if sum < 0.5 {
            -normal::quantile(sum.next_up())
        } else {
            // 1 − α is exact for α ≥ ½ and off by half a unit in the last place below that.
            let left = (1.0 - self.alpha) - l - if self.alpha < 0.5 { f64::EPSILON } else { 0.0 };
            normal::quantile(left.next_down().max(0.0))
        };
        Self::gaussian(mu, x)
    }

    /// At least [`symmetric`](Self::symmetric), without a quantile: G_µ(α + l) is below the chord of
    /// G_µ from α to 1, and G_µ(α) − l as well, because G_µ(α) ≤ 1 − α.
    fn most(&self, mu: f64, l: f64) -> f64 {
        normal::cdf(self.x - mu) * (1.0 - l / (1.0 - self.alpha)) * (1.0 + 1e-9)
    }

    fn symmetric(&self, mu: f64, l: f64) -> f64 {
        let steep = Self::gaussian(mu, self.x) - l;
        let steep = if l == 0.0 { steep } else { steep.next_down() };
        // `max` would hide the NaN of an α outside [0, 1].
        if steep.is_nan() { steep } else { steep.max(self.shifted(mu, l)).max(0.0) }
    }
}

/// Values of Gaussian trade-off functions at one α, rounded up.
struct Above {
    alpha: f64,
    /// Φ⁻¹(1 − α).
    x: f64,
}

impl Above {
    fn new(alpha: f64) -> Self {
        Self { alpha, x: -normal::quantile(alpha) }
    }

    /// Φ(x − µ).
    fn gaussian(mu: f64, x: f64) -> f64 {
        if x.is_infinite() || mu == f64::INFINITY {
            return if x == f64::INFINITY { 1.0 } else { 0.0 };
        }
        (normal::cdf(x - mu + slack(mu, x)) * (1.0 + normal::RELATIVE_ERROR)).clamp(0.0, 1.0)
    }

    fn raised(&self, mu: f64, u: f64) -> f64 {
        // u + (1 − u)·G, where u is correct to the last bit and G ≤ 1.
        let value = u + (1.0 - u) * Self::gaussian(mu, self.x) * (1.0 + 4.0 * f64::EPSILON);
        (value * (1.0 + 4.0 * f64::EPSILON)).clamp(0.0, 1.0)
    }

    /// f̂^U⁻¹(α) = G_µ((α−u)/(1−u)), through 1 − (α−u)/(1−u) = (1−α)/(1−u); 1 for α ≤ u.
    fn mirrored(&self, mu: f64, u: f64) -> f64 {
        let rest = 1.0 - self.alpha + if self.alpha < 0.5 { f64::EPSILON } else { 0.0 };
        let share = rest / (1.0 - u) * (1.0 + 4.0 * f64::EPSILON);
        if share < 1.0 { Self::gaussian(mu, normal::quantile(share)) } else { 1.0 }
    }

    /// At most [`symmetric`](Self::symmetric), without a quantile: f^U lies above G_µ and above its
    /// supporting line of slope −1, which is at least 1 − (1−u)(2Φ(µ/2) − 1) − α.
    fn least(&self, mu: f64, u: f64) -> f64 {
        let line = 1.0 - (1.0 - u) * (1.0 - 2.0 * normal::cdf(-0.5 * mu)) - self.alpha;
        normal::cdf(self.x - mu).max(line) * (1.0 - 1e-9)
    }

    fn symmetric(&self, mu: f64, u: f64) -> f64 {
        let blind = 1.0 - self.alpha;
        if mu <= 0.0 || u >= 1.0 || self.x.is_nan() {
            return if self.x.is_nan() { f64::NAN } else { blind };
        }
        let mut value = blind.min(self.raised(mu, u)).min(self.mirrored(mu, u));
        // Any β₀ gives a valid chord; this is the best up to rounding.
        let beta0 = normal::cdf((-u).ln_1p() / mu - 0.5 * mu);
        let beta1 = Above::new(beta0).raised(mu, u);
        if beta0 < self.alpha && self.alpha < beta1 {
            value = value.min((beta0 + beta1).next_up() - self.alpha);
        }
        value
    }
}

/// A value of c with both of its tails, rounded up.
#[derive(Clone, Copy, Debug)]
struct Cut {
    c: f64,
    mu: f64,
    /// u ≥ Pr[c' < c].
    left: f64,
    /// l ≥ Pr[c' > c].
    right: f64,
}

/// The best certificate at one α.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Certificate {
    /// c^L or c^U.
    pub c: f64,
    /// l or u: the probability of the values of c beyond it.
    pub tail: f64,
    /// The bound on the miss rate f(α).
    pub beta: f64,
}

/// The certificates f^L and f^U of one run, for every cut c of the law of c.
///
/// ```
/// use dpsgd_privacy::{bounds::Bounds, mechanism::*};
/// let run = RunConfig::single(PhaseConfig {
///     sampling: Sampling::Subsample { samples: 60_000, groups: 64, group_size: 1 },
///     length: Length::Epochs(100),
///     noise: NoiseScale::Sigma(20.0),
///     filtered: false,
/// });
/// let bounds = Bounds::of(&run.check()?)?;
/// assert!(bounds.lower_hat(0.05) <= bounds.lower(0.05));
/// assert!(bounds.lower(0.05) < bounds.upper(0.05));
/// assert!(bounds.upper(0.05) <= bounds.upper_hat(0.05));
/// # Ok::<(), dpsgd_privacy::PrivacyError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Bounds {
    cuts: Vec<Cut>,
}

impl Bounds {
    /// Takes c from `law`. `noise` is measured in units of the most that one hit group can move the
    /// sum ([`Mechanism::noise_per_hit`]).
    ///
    /// # Guarantee
    /// With f the trade-off function of adversary A₁, at every α in [0, 1]
    /// `lower_hat ≤ lower ≤ f ≤ upper ≤ upper_hat`, also when c = 0 has positive probability.
    /// What the law left out ([`Law::missing`]), the error of its probabilities and all rounding
    /// are charged to the tails and to the values.
    pub fn new(law: &Law, noise: f64) -> Result<Self, PrivacyError> {
        require(noise > 0.0 && noise.is_finite(), "noise", noise, "a finite number above 0")?;
        let points: Vec<(u64, f64)> = law.iter().collect();
        // Sums of positive terms: the error is relative.
        let up = 1.0 + law.relative_error() + (points.len() + 8) as f64 * f64::EPSILON;
        let charged = |sum: f64| (sum * up + law.missing()).min(1.0);
        let mut left = 0.0;
        let mut cuts = Vec::with_capacity(points.len());
        for &(square, q) in &points {
            let c = (square as f64).sqrt();
            cuts.push(Cut { c, mu: c / noise, left: charged(left), right: 0.0 });
            left += q;
        }
        let mut right = 0.0;
        for (cut, &(_, q)) in cuts.iter_mut().zip(&points).rev() {
            cut.right = charged(right);
            right += q;
        }
        Ok(Self { cuts })
    }

    /// The certificates of a checked run. Refused when c alone does not describe the run: with
    /// further Gaussian releases, or with phases of different noise.
    pub fn of(mechanism: &Mechanism) -> Result<Self, PrivacyError> {
        let refuse = |what: &str, why: &str| {
            Err(PrivacyError::Unsupported { what: what.to_string(), why: why.to_string() })
        };
        if !mechanism.releases().is_empty() {
            return refuse(
                "f^L and f^U with further Gaussian releases",
                "they are stated for the law of c alone; the exact curve covers the whole run",
            );
        }
        match adversary::law(mechanism)? {
            Some(law) => Self::new(&law, mechanism.noise_per_hit(&mechanism.phases()[0])),
            None => refuse(
                "f^L and f^U with phases of different noise",
                "G_{c/σ} has one σ; the exact curve covers the whole run",
            ),
        }
    }

    /// The largest f^L(α) over c^L.
    pub fn lower(&self, alpha: f64) -> f64 {
        self.best_lower(alpha).beta
    }

    /// The smallest f^U(α) over c^U. A minimum of convex functions: symmetric and decreasing, but
    /// convex only for one c^U ([`f_upper`]).
    pub fn upper(&self, alpha: f64) -> f64 {
        self.best_upper(alpha).beta
    }

    /// The largest f̂^L(α) over c^L.
    pub fn lower_hat(&self, alpha: f64) -> f64 {
        let at = Below::new(alpha);
        self.best(|cut| at.most(cut.mu, cut.right), |cut| at.shifted(cut.mu, cut.right)).1
    }

    /// The smallest f̂^U(α) over c^U.
    pub fn upper_hat(&self, alpha: f64) -> f64 {
        let at = Above::new(alpha);
        -self.best(|cut| -cut.left, |cut| -at.raised(cut.mu, cut.left)).1
    }

    /// c^L with the largest f^L(α).
    pub fn best_lower(&self, alpha: f64) -> Certificate {
        let at = Below::new(alpha);
        let (cut, beta) = self.best(|cut| at.most(cut.mu, cut.right), |cut| at.symmetric(cut.mu, cut.right));
        Certificate { c: cut.c, tail: cut.right, beta }
    }

    /// c^U with the smallest f^U(α).
    pub fn best_upper(&self, alpha: f64) -> Certificate {
        let at = Above::new(alpha);
        let (cut, beta) = self.best(|cut| -at.least(cut.mu, cut.left), |cut| -at.symmetric(cut.mu, cut.left));
        Certificate { c: cut.c, tail: cut.left, beta: -beta }
    }

    /// The cut with the largest score; `most` is a cheap upper bound on the score.
    ///
    /// Every cut is a valid certificate, so an incomplete search costs only tightness. It tries
    /// [`PROBES`] evenly spaced cuts, then finer ones around the best: the score rises while the
    /// tail is still too heavy and falls once it no longer matters. A law with few values can be
    /// ragged, so there every cut that could still be better is tried.
    fn best(&self, most: impl Fn(&Cut) -> f64, score: impl Fn(&Cut) -> f64) -> (Cut, f64) {
        // An empty law has no cut: everything then lies beyond it.
        let nothing = Cut { c: 0.0, mu: 0.0, left: 1.0, right: 1.0 };
        let Some(last) = self.cuts.len().checked_sub(1) else { return (nothing, score(&nothing)) };
        let mut best = (last, score(&self.cuts[last]));
        let (mut low, mut high) = (0, last);
        loop {
            let step = (high - low).div_ceil(PROBES).max(1);
            for i in (low..=high).step_by(step) {
                let value = score(&self.cuts[i]);
                if value > best.1 {
                    best = (i, value);
                }
            }
            if step == 1 {
                break;
            }
            (low, high) = (best.0.saturating_sub(step), (best.0 + step).min(last));
        }
        if last < FEW {
            for (i, cut) in self.cuts.iter().enumerate() {
                if (i < low || i > high) && most(cut) > best.1 {
                    let value = score(cut);
                    if value > best.1 {
                        best = (i, value);
                    }
                }
            }
        }
        (self.cuts[best.0], best.1)
    }
}

/// Cuts tried at one level of the search.
const PROBES: usize = 64;
/// Up to this many cuts the search is exhaustive.
const FEW: usize = 4096;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;
    use crate::curve::Curve;
    use crate::gaussian;
    use crate::mechanism::{Length, NoiseScale, PhaseConfig, RunConfig, Sampling};

    fn run(sampling: Sampling, rounds: u64, sigma: f64, differing: u64, filtered: bool) -> Mechanism {
        let mut run = RunConfig::single(PhaseConfig {
            sampling,
            length: Length::Rounds(rounds),
            noise: NoiseScale::Sigma(sigma),
            filtered,
        });
        run.differing = differing;
        run.check().unwrap()
    }

    const ALPHAS: [f64; 15] =
        [0.0, 1e-12, 1e-6, 1e-3, 0.02, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.99, 0.999_999, 1.0];

    prop_compose! {
        fn small_run()(
            groups in 1u64..5, group_size in 1u64..5, more in 0u64..40, rounds in 1u64..40,
            sigma in 0.2f64..6.0, differing in 1u64..6, shuffled: bool, filtered: bool,
        ) -> Mechanism {
            let samples = groups * group_size + more;
            let sampling = if shuffled {
                Sampling::Shuffle { samples, groups, group_size }
            } else {
                Sampling::Subsample { samples, groups, group_size }
            };
            run(sampling, rounds, sigma, differing.min(samples), filtered)
        }
    }

    proptest! {
        // A fixed seed, so that a failure is the same on every machine.
        #![proptest_config(ProptestConfig {
            rng_seed: RngSeed::Fixed(1),
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        /// The theorems, against f by direct summation. Leftover samples, filtering and few rounds
        /// give q(0) > 0 in most cases.
        #[test]
        fn the_exact_curve_lies_between(mechanism in small_run(), random in 0.0f64..1.0) {
            let bounds = Bounds::of(&mechanism).unwrap();
            let exact = adversary::mixture(&mechanism).unwrap().unwrap();
            for alpha in ALPHAS.into_iter().chain([random]) {
                let f = exact.beta(alpha).unwrap();
                let (lower, upper) = (bounds.lower(alpha), bounds.upper(alpha));
                // The two computations of f each contain a few roundings of quantities near 1.
                let rounding = 1e-12;
                prop_assert!(lower <= f.upper + rounding, "f^L({alpha}) = {lower:e} > {f:?}");
                prop_assert!(upper >= f.lower - rounding, "f^U({alpha}) = {upper:e} < {f:?}");
                prop_assert!(bounds.lower_hat(alpha) <= lower && upper <= bounds.upper_hat(alpha));
                prop_assert!((0.0..=1.0 - alpha).contains(&lower) && (0.0..=1.0 - alpha).contains(&upper));
            }
        }

        #[test]
        fn both_are_symmetric_and_decreasing(mechanism in small_run(), alpha in 1e-4f64..0.9999) {
            let bounds = Bounds::of(&mechanism).unwrap();
            for f in [&(|a| bounds.lower(a)) as &dyn Fn(f64) -> f64, &|a| bounds.upper(a)] {
                let mut last = f(0.0);
                for i in 1..=64 {
                    let here = f(f64::from(i) / 64.0);
                    prop_assert!(here <= last * (1.0 + 1e-12), "{here:e} after {last:e}");
                    last = here;
                }
                let beta = f(alpha);
                // Where f is flat (0 beyond 1 − l, or within rounding of 1), α cannot be recovered.
                if beta > 1e-290 && beta < 1.0 - 1e-3 {
                    let back = f(beta);
                    prop_assert!((back / alpha - 1.0).abs() < 1e-9, "f(f({alpha})) = {back}, f = {beta:e}");
                }
            }
        }

        #[test]
        fn the_lower_bound_and_every_single_upper_bound_are_convex(
            mechanism in small_run(), mu in 0.0f64..8.0, u in 0.0f64..0.999,
        ) {
            let bounds = Bounds::of(&mechanism).unwrap();
            let (upper, lower) = (|a| f_upper(mu, u, a), |a| f_lower(mu, u, a));
            for f in [&(|a| bounds.lower(a)) as &dyn Fn(f64) -> f64, &upper, &lower] {
                let values: Vec<f64> = (0..=200).map(|i| f(f64::from(i) / 200.0)).collect();
                for (i, w) in values.windows(3).enumerate() {
                    prop_assert!(w[0] + w[2] >= 2.0 * w[1] - 1e-12, "at {i}: {w:?}");
                }
            }
        }

        /// The explicit pieces of f^U against the definition: the convex hull of min{f̂, f̂⁻¹} by
        /// supporting lines on a fine grid.
        #[test]
        fn the_explicit_upper_bound_is_the_double_conjugate(
            mu in 0.01f64..6.0, u in 1e-6f64..0.999, alpha in 1e-6f64..1.0,
        ) {
            let hat = |a: f64| u + (1.0 - u) * gaussian::tradeoff(mu, a);
            let mirror = |a: f64| if a <= u { 1.0 } else { gaussian::tradeoff(mu, (a - u) / (1.0 - u)) };
            // The lower hull of points that are dense near 0 and 1, where f is steep.
            let mut hull: Vec<(f64, f64)> = Vec::new();
            let inside = || (-2000..=2000).map(|i| normal::cdf(f64::from(i) * 0.004));
            // Dense near 0 and 1 for f̂, and near u for its mirror image.
            let around_u = inside().map(|a| u + (1.0 - u) * a);
            let mut places: Vec<f64> = inside().chain(around_u).chain([0.0, 1.0]).collect();
            places.sort_by(f64::total_cmp);
            for a in places {
                let b = hat(a).min(mirror(a));
                while let [.., p, q] = hull[..] {
                    if (q.1 - p.1) * (a - p.0) < (b - p.1) * (q.0 - p.0) {
                        break;
                    }
                    hull.pop();
                }
                hull.push((a, b));
            }
            let i = hull.partition_point(|p| p.0 < alpha).clamp(1, hull.len() - 1);
            let (p, q) = (hull[i - 1], hull[i]);
            let hull = p.1 + (q.1 - p.1) * (alpha - p.0) / (q.0 - p.0);
            let explicit = f_upper(mu, u, alpha);
            prop_assert!((explicit - hull).abs() < 1e-4, "{explicit} {hull}");
        }
    }

    #[test]
    fn a_single_value_of_c_leaves_no_gap() {
        // Shuffling, g = 1, ms | N: c² = E always, so f = G_{√E/σ} = f^L = f^U.
        let sampling = Sampling::Shuffle { samples: 60, groups: 3, group_size: 2 };
        let bounds = Bounds::of(&run(sampling, 40, 2.0, 1, false)).unwrap();
        for alpha in ALPHAS {
            let g = gaussian::tradeoff(1.0, alpha);
            for value in
                [bounds.lower(alpha), bounds.lower_hat(alpha), bounds.upper(alpha), bounds.upper_hat(alpha)]
            {
                assert!((value - g).abs() <= 1e-12 * g, "{alpha}: {value} {g}");
            }
        }
    }

    #[test]
    fn the_search_finds_the_best_cut_of_a_wide_law() {
        let sampling = Sampling::Subsample { samples: 60_000, groups: 64, group_size: 1 };
        let mechanism = run(sampling, 9_375_000, 400.0, 8, false);
        let bounds = Bounds::of(&mechanism).unwrap();
        assert!(bounds.cuts.len() > 10_000, "{}", bounds.cuts.len());
        let exact = adversary::mixture(&mechanism).unwrap().unwrap();
        for alpha in ALPHAS {
            let all = |score: &dyn Fn(&Cut) -> f64| bounds.cuts.iter().map(score).fold(f64::MIN, f64::max);
            let lower = all(&|cut| f_lower(cut.mu, cut.right, alpha));
            let upper = -all(&|cut| -f_upper(cut.mu, cut.left, alpha));
            assert!(bounds.lower(alpha) >= lower * (1.0 - 1e-12), "{alpha}");
            assert!(bounds.upper(alpha) <= upper * (1.0 + 1e-12), "{alpha}");
            let f = exact.beta(alpha).unwrap();
            assert!(lower <= f.upper && f.lower <= upper);
        }
    }

    /// N = 60000, m = 64, 93750 rounds: Pr[c² > 107.07] is 0.224, where the paper's Hoeffding
    /// bound (without the number of rounds) says e^{−100}.
    #[test]
    fn the_tails_are_the_exact_ones() {
        let sampling = Sampling::Subsample { samples: 60_000, groups: 64, group_size: 1 };
        let bounds = Bounds::of(&run(sampling, 93_750, 2.0, 1, false)).unwrap();
        let cut = bounds.cuts.iter().rfind(|cut| cut.c * cut.c <= 100.0 * (1.0 + 1.0 / 200.0_f64.sqrt()));
        assert!((cut.unwrap().right - 0.224).abs() < 5e-4, "{cut:?}");
    }

    #[test]
    fn the_tradeoff_function_of_epsilon_and_delta_is_the_maximum() {
        let (epsilon, delta) = (1.5, 0.01);
        for alpha in ALPHAS {
            let beta = tradeoff_of(epsilon, delta, alpha);
            // The definition of (ε, δ)-DP: no event gains more than δ beyond the factor e^ε.
            assert!(1.0 - beta <= epsilon.exp() * alpha + delta + 1e-15);
            assert!(1.0 - alpha <= epsilon.exp() * beta + delta + 1e-15);
        }
        // The printed minimum would be 0 at α = 1 and earlier, and negative without the 0.
        assert!((tradeoff_of(epsilon, delta, 0.0) - (1.0 - delta)).abs() < 1e-15);
        assert_eq!(tradeoff_of(f64::INFINITY, 0.0, 0.5), 0.0);
    }

    #[test]
    fn what_is_not_covered_is_refused() {
        let sampling = Sampling::Subsample { samples: 100, groups: 4, group_size: 1 };
        let mut config = run(sampling, 10, 1.0, 1, false).config();
        config.releases = vec![0.1];
        let refused = Bounds::of(&config.check().unwrap());
        assert!(matches!(refused, Err(PrivacyError::Unsupported { .. })));
        config.releases.clear();
        config.phases.push(PhaseConfig { noise: NoiseScale::Sigma(2.0), ..config.phases[0] });
        let refused = Bounds::of(&config.check().unwrap());
        assert!(matches!(refused, Err(PrivacyError::Unsupported { .. })));
        let law = adversary::law(&run(sampling, 10, 1.0, 1, false)).unwrap().unwrap();
        assert!(matches!(Bounds::new(&law, f64::NAN), Err(PrivacyError::Argument { .. })));
    }

    #[test]
    fn outside_of_the_unit_interval_there_is_no_value() {
        for alpha in [-0.1, 1.1, f64::NAN] {
            for value in [
                f_lower(1.0, 0.3, alpha),
                f_lower_hat(1.0, 0.3, alpha),
                f_upper(1.0, 0.3, alpha),
                f_upper_hat(1.0, 0.3, alpha),
            ] {
                assert!(value.is_nan(), "{alpha} {value}");
            }
        }
    }
}
