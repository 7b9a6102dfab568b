//! Two and three rounds against the definition: δ(ε) = ∫ (p − e^ε·q)₊ with all rounds but the last integrated by
//! the trapezoidal rule, and the last one in closed form.

mod common;

use common::{poisson, run};
use dpsgd_privacy::adversary::{Adversary, Answer, Route, against_a0, curve};
use dpsgd_privacy::mechanism::NoiseScale;
use dpsgd_privacy::normal::cdf;

/// Poisson sampling with rate p and noise multiplier z; units of z.
#[derive(Clone, Copy)]
struct Round {
    p: f64,
    shift: f64,
}

impl Round {
    /// The likelihood ratio of the round with the sample against the one without.
    fn ratio(self, x: f64) -> f64 {
        1.0 + self.p * (self.shift * x - 0.5 * self.shift * self.shift).exp_m1()
    }

    /// Where the ratio is r, for r above 1 − p.
    fn place(self, r: f64) -> f64 {
        ((r - 1.0) / self.p).ln_1p() / self.shift + 0.5 * self.shift
    }

    /// ∫ φ(x)·(w·ratio(x) − e^ε)₊ dx.
    fn removed(self, w: f64, epsilon: f64) -> f64 {
        let r = epsilon.exp() / w;
        if r <= 1.0 - self.p {
            return w - epsilon.exp();
        }
        let x = self.place(r);
        let (here, moved) = (cdf(-x), cdf(self.shift - x));
        w * ((1.0 - self.p) * here + self.p * moved) - epsilon.exp() * here
    }

    /// ∫ φ(x)·(1 − e^ε·w·ratio(x))₊ dx.
    fn added(self, w: f64, epsilon: f64) -> f64 {
        let r = (-epsilon).exp() / w;
        if r <= 1.0 - self.p {
            return 0.0;
        }
        let x = self.place(r);
        let (here, moved) = (cdf(x), cdf(x - self.shift));
        here - epsilon.exp() * w * ((1.0 - self.p) * here + self.p * moved)
    }

    /// The integral of `last` over all rounds but one; `w` is the ratio of those so far.
    fn over(self, rounds: u64, w: f64, step: f64, last: &dyn Fn(f64) -> f64) -> f64 {
        if rounds == 1 {
            return last(w);
        }
        let high = ((12.0 + 2.0 * self.shift) / step) as i64;
        let terms = (-(12.0 / step) as i64..=high).map(|i| {
            let x = i as f64 * step;
            (-0.5 * x * x).exp() * self.over(rounds - 1, w * self.ratio(x), step, last)
        });
        terms.sum::<f64>() * step / std::f64::consts::TAU.sqrt()
    }

    /// The worse of removing and adding the sample.
    fn delta(self, rounds: u64, epsilon: f64) -> f64 {
        // With little noise the integrand bends within a hundredth of a deviation, and where the other rounds are
        // quiet it has a kink, which costs (step · rate of decay)² / 8.
        let step = if rounds == 2 { 2e-5 } else { 0.03 };
        let removed = self.over(rounds, 1.0, step, &|w| self.removed(w, epsilon));
        removed.max(self.over(rounds, 1.0, step, &|w| self.added(w, epsilon)))
    }
}

fn assert_holds(Answer { value: found, route }: Answer, expected: f64, what: &str) {
    // The oracle's own digits: its terms are differences of probabilities up to one.
    let room = 1e-8 * expected + 1e-15;
    let holds_truth = route == Route::Direct;
    assert!(!holds_truth || found.lower <= expected + room, "{what}: {found:?} {expected:e}");
    assert!(found.upper >= expected - room, "{what}: {found:?} {expected:e}");
}

#[test]
fn a_few_rounds_are_their_integral() {
    let mut narrow = 0;
    let mut asked = 0;
    for (rate, z, rounds) in [
        (0.5, 1.0, 2),
        (0.5, 1.0, 3),
        (0.5, 0.3, 2),
        (0.9, 2.0, 3),
        (0.1, 8.0, 3),
        (0.1, 0.5, 2),
        (0.01, 0.7, 2),
        (0.01, 20.0, 2),
        (1e-3, 0.4, 2),
        (1e-3, 1.0, 2),
        (1e-4, 3.0, 2),
        (1e-6, 0.5, 2),
        (1e-6, 25.0, 2),
    ] {
        let mechanism = run(poisson(rate), rounds, NoiseScale::Multiplier(z), 1).check().unwrap();
        let best = against_a0(&mechanism).unwrap();
        let round = Round { p: rate, shift: 1.0 / z };
        for delta in [1e-2, 1e-4, 1e-6, 1e-9, 1e-12] {
            let what = format!("{rate} {z} {rounds} {delta}");
            let Answer { value: epsilon, route } = best.answer_epsilon(delta).unwrap();
            asked += 1;
            narrow += usize::from(epsilon.width() <= 1e-6 * epsilon.upper);
            assert!(
                round.delta(rounds, epsilon.upper) <= delta * (1.0 + 1e-8) + 1e-15,
                "{what}: {epsilon:?}"
            );
            // The lower end of another theorem's answer is that of its bound.
            if epsilon.lower > 0.0 && route == Route::Direct {
                assert!(
                    round.delta(rounds, epsilon.lower) >= delta * (1.0 - 1e-8) - 1e-15,
                    "{what}: {epsilon:?}"
                );
            }
            let middle = 0.7 * epsilon.upper;
            assert_holds(best.answer_delta(middle).unwrap(), round.delta(rounds, middle), &what);
        }
        let at_zero = best.answer_delta(0.0).unwrap();
        assert_holds(at_zero, round.delta(rounds, 0.0), &format!("{rate} {z} {rounds}"));
    }
    // Rounds that are rare and quiet have wide answers; what is asked later finds less of the budget.
    assert!(narrow * 5 >= asked * 3, "{narrow} of {asked} are narrow");
}

/// Rare rounds that tell much, far in the tail: ε lies between the two modes of the tilted law, where a line and a
/// transform have no digits. All terms of the integral are positive, so it has them.
#[test]
fn one_loud_round_among_a_few_is_its_integral() {
    for (rate, z, rounds, least_delta) in [
        (1.431e-5, 0.5738, 2, 1e-26_f64),
        (2e-4, 3.0, 2, 1e-20),
        (1e-6, 0.5, 2, 1e-22),
        (1e-5, 10.0, 2, 1e-16),
        (1e-3, 2.0, 2, 1e-18),
    ] {
        let mechanism = run(poisson(rate), rounds, NoiseScale::Multiplier(z), 1).check().unwrap();
        let curve = curve(&mechanism, Adversary::A0).unwrap();
        let round = Round { p: rate, shift: 1.0 / z };
        for delta in [least_delta, least_delta.powf(0.7)] {
            let what = format!("{rate} {z} {rounds} {delta}");
            let epsilon = curve.epsilon(delta).unwrap();
            assert!(epsilon.width() <= 1e-3 * epsilon.upper, "{what}: {epsilon:?}");
            let ends = [epsilon.upper, epsilon.lower].map(|e| round.delta(rounds, e));
            assert!(ends[0] <= delta * (1.0 + 1e-7), "{what}: {epsilon:?} {ends:?}");
            assert!(ends[1] >= delta * (1.0 - 1e-7), "{what}: {epsilon:?} {ends:?}");
        }
    }
}
