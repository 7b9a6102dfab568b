//! The measured trade-off of an attack, beside the claimed one.

use dpsgd_privacy::{Adversary, Interval, gaussian, normal};

use crate::binomial::{lower_limit, upper_limit};
use crate::claim::Claim;
use crate::level;

/// At which shares of the pilot's statistics the thresholds lie.
const SHARES: [f64; level::THRESHOLDS] =
    [0.005, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.995];

/// Thresholds from the statistics of a pilot on both data sets, which is not used for anything else: they are
/// fixed before the first trial that counts.
pub fn thresholds(mut pilot: Vec<f64>) -> Vec<f64> {
    pilot.sort_by(f64::total_cmp);
    let mut thresholds: Vec<f64> =
        SHARES.iter().filter_map(|share| pilot.get((share * pilot.len() as f64) as usize).copied()).collect();
    thresholds.dedup();
    thresholds
}

/// How the statistics of all trials lie to the thresholds.
#[derive(Clone, Debug)]
pub struct Counts {
    thresholds: Vec<f64>,
    /// For D and for D': the number of trials by the number of thresholds below their statistic.
    places: [Vec<u64>; 2],
}

impl Counts {
    /// None yet.
    pub fn new(thresholds: Vec<f64>) -> Self {
        let places = vec![0; thresholds.len() + 1];
        Self { thresholds, places: [places.clone(), places] }
    }

    /// The statistic of a trial; `with` if it was on D.
    pub fn see(&mut self, with: bool, statistic: f64) {
        let place = self.thresholds.partition_point(|threshold| *threshold < statistic);
        self.places[usize::from(!with)][place] += 1;
    }

    /// Adds what another thread saw.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.places.iter_mut().zip(&other.places) {
            mine.iter_mut().zip(theirs).for_each(|(a, b)| *a += b);
        }
    }

    /// For every threshold: trials on D' above it, trials on D at or below it; and the trials on each.
    fn errors(&self) -> (Vec<(u64, u64)>, (u64, u64)) {
        let [with, without] = &self.places;
        let errors = (0..self.thresholds.len())
            .map(|i| (without[i + 1..].iter().sum(), with[..=i].iter().sum()))
            .collect();
        (errors, (with.iter().sum(), without.iter().sum()))
    }
}

/// The errors of the attack at one threshold.
#[derive(Clone, Copy, Debug)]
pub struct AttackPoint {
    /// It accuses above this log-likelihood ratio.
    pub threshold: f64,
    /// False alarms: trials on D' that were accused.
    pub false_alarms: u64,
    /// Misses: trials on D that were not.
    pub misses: u64,
    /// Their share, with its confidence limits.
    pub alpha: (f64, Interval),
    /// The same for misses.
    pub beta: (f64, Interval),
    /// The claim at the upper limit of α: no attack misses less. The certified lower end.
    pub claimed: f64,
    /// The claim at the measured α.
    pub claimed_there: f64,
}

impl AttackPoint {
    /// Whether the attack is better than the claim allows, beyond chance.
    ///
    /// # Guarantee
    /// For a mechanism that satisfies the claim this is true with probability at most twice
    /// [`level::of_limit`]: with α ≤ α⁺ and β ≤ β⁺, β⁺ < f(α⁺) would give β < f(α), as f falls.
    pub fn contradicts(&self) -> bool {
        self.beta.1.upper < self.claimed
    }

    /// µ that the point proves to be leaked: no G_µ' with µ' below lies under it.
    pub fn mu(&self) -> f64 {
        -normal::quantile(self.alpha.1.upper) - normal::quantile(self.beta.1.upper)
    }

    /// ε that the point proves to be leaked at δ: below, (ε, δ)-DP would not allow it.
    pub fn epsilon(&self, delta: f64) -> f64 {
        let (alpha, beta) = (self.alpha.1.upper, self.beta.1.upper);
        ((1.0 - delta - beta) / alpha).ln().max(((1.0 - delta - alpha) / beta).ln())
    }
}

/// What came of one adversary.
#[derive(Clone, Debug)]
pub struct Attack {
    /// Who attacks.
    pub adversary: Adversary,
    /// Whose guarantee is compared with it: the same, or A₁'s where nothing is claimed about A₀.
    pub claim: Adversary,
    /// One for each threshold.
    pub points: Vec<AttackPoint>,
    /// (α, f(α)) of the claim.
    pub curve: Vec<(f64, f64)>,
    /// At least this µ leaks, and the µ of the claim at that same false-alarm rate.
    pub mu: (f64, f64),
    /// The same two at the threshold where they are nearest to each other.
    pub closest: (f64, f64),
    /// At least this ε leaks at δ, and the ε of the claim.
    pub epsilon: (f64, f64),
}

impl Attack {
    /// The measured curve beside the claim.
    pub fn new(adversary: Adversary, claim: &Claim, counts: &Counts, delta: f64) -> Self {
        let (errors, (with, without)) = counts.errors();
        let share = |count: u64, of: u64| {
            let level = level::of_limit();
            let limits = Interval::new(lower_limit(count, of, level), upper_limit(count, of, level));
            (count as f64 / of as f64, limits)
        };
        let mut points = Vec::new();
        for (&threshold, &(false_alarms, misses)) in counts.thresholds.iter().zip(&errors) {
            let (alpha, beta) = (share(false_alarms, without), share(misses, with));
            let (claimed, claimed_there) = (claim.beta(alpha.1.upper), claim.beta(alpha.0));
            points.push(AttackPoint { threshold, false_alarms, misses, alpha, beta, claimed, claimed_there });
        }
        let (mut mu, mut closest, mut epsilon) = ((0.0, 0.0), (0.0, 1.0), 0.0_f64);
        for point in &points {
            let there = gaussian::mu_through(point.alpha.1.upper, Interval::exact(point.claimed)).upper;
            if point.mu() > mu.0 {
                mu = (point.mu(), there);
            }
            if point.mu() * closest.1 > closest.0 * there {
                closest = (point.mu(), there);
            }
            epsilon = epsilon.max(point.epsilon(delta));
        }
        if mu.0 == 0.0 {
            // Nothing was proved; the claim where it is nearest to the diagonal's middle, for comparison.
            let middle = claim.middle();
            mu.1 = gaussian::mu_through(middle, Interval::exact(middle)).upper;
            closest = mu;
        }
        let grid = (0..=80).map(|i| f64::from(i) / 80.0).map(|x| x * x * (3.0 - 2.0 * x));
        Self {
            adversary,
            claim: claim.adversary,
            points,
            curve: grid.map(|alpha| (alpha, claim.beta(alpha))).collect(),
            mu,
            closest,
            epsilon: (epsilon, claim.epsilon),
        }
    }

    /// Whether it is better than the claim allows.
    pub fn contradicts(&self) -> bool {
        self.points.iter().any(AttackPoint::contradicts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_on_the_right_side() {
        let mut counts = Counts::new(vec![0.0, 1.0]);
        for (with, statistic) in
            [(true, -1.0), (true, 0.0), (true, 0.5), (true, 2.0), (false, 0.0), (false, 1.5)]
        {
            counts.see(with, statistic);
        }
        assert_eq!(counts.errors(), (vec![(1, 2), (1, 3)], (4, 2)));
    }

    #[test]
    fn thresholds_are_quantiles_without_repetition() {
        let thresholds = thresholds((0..1000).map(|i| f64::from((i * 7) % 1000)).collect());
        assert_eq!((thresholds.len(), thresholds[7]), (15, 500.0));
        assert_eq!(super::thresholds(vec![0.0; 50]), vec![0.0]);
        assert!(super::thresholds(Vec::new()).is_empty());
    }

    #[test]
    fn what_a_point_proves() {
        let point = AttackPoint {
            threshold: 0.0,
            false_alarms: 0,
            misses: 0,
            alpha: (0.1, Interval::new(0.05, 0.158_655_253_931_457)),
            beta: (0.1, Interval::new(0.05, 0.158_655_253_931_457)),
            claimed: 0.2,
            claimed_there: 0.2,
        };
        assert!(point.contradicts());
        assert!((point.mu() - 2.0).abs() < 1e-12);
        // The (ε, δ) line through the point.
        let epsilon = point.epsilon(1e-5);
        assert!((1.0 - 1e-5 - epsilon.exp() * 0.158_655_253_931_457 - 0.158_655_253_931_457).abs() < 1e-12);
        assert!(gaussian::delta(2.0, epsilon) > 1e-5);
    }
}
