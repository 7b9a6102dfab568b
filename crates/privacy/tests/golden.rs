//! Every reference value that was computed outside this project.
//!
//! The references of `accounting.json` have more digits than an `f64`, those of `adversary-a1.json`
//! about ten. An interval must contain its reference up to the reference's own accuracy, and both
//! ends must be close to it.

mod common;

use common::{poisson, relative_distance, run, shuffle, subsample, substituting};
use dpsgd_privacy::adversary::{Adversary, curve, law};
use dpsgd_privacy::curve::Curve;
use dpsgd_privacy::gaussian;
use dpsgd_privacy::mechanism::{Length, NoiseScale, PhaseConfig, RunConfig};
use dpsgd_privacy::{Interval, PrivacyError};
use serde_json::Value;

/// Distance of both ends from the reference, and relative width for δ from 1e-3 to 1e-15.
const NEAR_A0: f64 = 1e-6;
const NEAR_A1: f64 = 1e-8;
/// A reference and a rate p are rounded to the nearest `f64` before they are compared.
const ROUNDED: f64 = 8.0 * f64::EPSILON;

fn accounting(block: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(include_str!("golden/accounting.json")).expect("valid JSON");
    let rows = file[block]["values"].as_array().expect("a list of rows").clone();
    assert!(!rows.is_empty(), "{block} is empty");
    rows
}

/// A number, a decimal string or a fraction "a/b".
fn number(value: &Value) -> f64 {
    match value {
        Value::Number(number) => number.as_f64().expect("a finite number"),
        Value::String(text) => match text.split_once('/') {
            Some((a, b)) => a.parse::<f64>().expect("digits") / b.parse::<f64>().expect("digits"),
            None => text.parse().expect("digits"),
        },
        other => panic!("{other} is not a number"),
    }
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(number).collect()
}

/// Failures are collected so that one wrong value does not hide the others.
#[derive(Default)]
struct Failures(Vec<String>);

impl Failures {
    fn expect(&mut self, ok: bool, message: impl FnOnce() -> String) {
        if !ok {
            self.0.push(message());
        }
    }

    /// `lower ≤ reference ≤ upper` up to `accuracy`, and both ends within `near`.
    fn close(&mut self, got: Interval, reference: f64, accuracy: f64, near: f64, setting: &str) {
        let inside = got.lower <= reference * (1.0 + accuracy) && reference * (1.0 - accuracy) <= got.upper;
        self.expect(inside, || format!("{setting}: {got:?} does not contain {reference:e}"));
        let distance = relative_distance(got, reference);
        self.expect(distance <= near, || format!("{setting}: {got:?} is {distance:e} from {reference:e}"));
    }

    /// The answer, or a failure and an interval that fails every comparison.
    fn answer(&mut self, answer: Result<Interval, PrivacyError>, setting: &str) -> Interval {
        answer.unwrap_or_else(|error| {
            self.0.push(format!("{setting}: {error}"));
            Interval { lower: f64::NAN, upper: f64::NAN }
        })
    }

    /// ε(δ) over the whole range of δ: narrow down to 1e-15, falling, finite at 1e-30.
    fn narrow(&mut self, curve: &dyn Curve, near: f64, setting: &str) {
        let mut last = f64::INFINITY;
        for delta in [1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10, 1e-12, 1e-15, 1e-30] {
            let setting = format!("{setting} δ={delta:e}");
            let epsilon = match curve.epsilon(delta) {
                Ok(epsilon) => epsilon,
                Err(error) => {
                    self.expect(false, || format!("{setting}: {error}"));
                    continue;
                }
            };
            let valid = 0.0 <= epsilon.lower && epsilon.lower <= epsilon.upper && epsilon.upper.is_finite();
            self.expect(valid, || format!("{setting}: {epsilon:?} is not valid and finite"));
            let width = epsilon.width() / epsilon.upper;
            self.expect(delta < 1e-15 || width <= near, || {
                format!("{setting}: {epsilon:?} has relative width {width:e}")
            });
            self.expect(last == f64::INFINITY || epsilon.upper >= last, || {
                format!("{setting}: {epsilon:?} is below ε at a larger δ, {last:e}")
            });
            last = epsilon.lower;
        }
    }

    fn finish(self) {
        assert!(self.0.is_empty(), "{} failures:\n{}", self.0.len(), self.0.join("\n"));
    }
}

fn curve_of(run: &RunConfig, adversary: Adversary) -> Box<dyn Curve> {
    let mechanism = run.check().expect("a valid run");
    curve(&mechanism, adversary).expect("a covered combination")
}

fn poisson_run(row: &Value, differing: u64) -> RunConfig {
    let rounds = row["T"].as_u64().expect("rounds");
    run(poisson(number(&row["p"])), rounds, NoiseScale::Multiplier(number(&row["sigma"])), differing)
}

fn name(block: &str, row: &Value) -> String {
    format!("{block} {}", row["name"].as_str().unwrap_or("?"))
}

#[test]
fn gaussian_tradeoff_and_profile() {
    let mut failures = Failures::default();
    let mut compared = 0;
    for row in accounting("gaussian") {
        let mu = number(&row["mu"]);
        for at in row["tradeoff"].as_array().expect("a list") {
            let (alpha, beta) = (number(&at["alpha"]), number(&at["beta"]));
            let got = gaussian::tradeoff(mu, alpha);
            // α carries a rounding that the quantile and the density pass on.
            failures
                .expect((got / beta - 1.0).abs() <= 1e-13, || format!("G_{mu}({alpha}) = {got:e}, {beta:e}"));
            compared += 1;
        }
        for at in row["delta"].as_array().expect("a list") {
            let (epsilon, delta) = (number(&at["eps"]), number(&at["delta"]));
            let got = gaussian::delta(mu, epsilon);
            // Below the smallest normal number a relative comparison means nothing.
            let allowed = if delta < f64::MIN_POSITIVE {
                f64::MIN_POSITIVE
            } else {
                delta * gaussian::delta_relative_error(mu, epsilon)
            };
            failures
                .expect((got - delta).abs() <= allowed, || format!("δ_{mu}({epsilon}) = {got:e}, {delta:e}"));
            failures.expect(delta < f64::MIN_POSITIVE || allowed <= 1e-9 * delta, || {
                format!("δ_{mu}({epsilon}): the stated error {allowed:e} is wide")
            });
            compared += 1;
        }
        let tv = number(&row["tv"]);
        let got = gaussian::delta(mu, 0.0);
        failures.expect((got / tv - 1.0).abs() <= 1e-14, || format!("tv of G_{mu} = {got:e}, {tv:e}"));
    }
    assert_eq!(compared, 9 * (11 + 9));
    failures.finish();
}

/// The Gaussian block again through a whole run: without sampling every round is G_{1/z}.
#[test]
fn gaussian_through_a_run() {
    let mut failures = Failures::default();
    for row in accounting("gaussian") {
        let mu = number(&row["mu"]);
        for adversary in [Adversary::A0, Adversary::A1] {
            let near = if adversary == Adversary::A0 { NEAR_A0 } else { NEAR_A1 };
            let curve = curve_of(&run(poisson(1.0), 1, NoiseScale::Multiplier(1.0 / mu), 1), adversary);
            for at in row["tradeoff"].as_array().expect("a list") {
                let (alpha, beta) = (number(&at["alpha"]), number(&at["beta"]));
                let setting = format!("{} G_{mu}({alpha})", adversary.name());
                match curve.beta(alpha) {
                    // 1/z is µ up to a rounding, with a condition number of µ·(quantile) here.
                    Ok(got) => failures.close(got, beta, 1e-14, near, &setting),
                    Err(error) => failures.expect(false, || format!("{setting}: {error}")),
                }
            }
            for at in row["delta"].as_array().expect("a list") {
                let (epsilon, delta) = (number(&at["eps"]), number(&at["delta"]));
                let setting = format!("{} δ_{mu}({epsilon})", adversary.name());
                match curve.delta(epsilon) {
                    Ok(got) if delta < 1e-30 => failures
                        .expect(got.lower <= delta && delta <= got.upper && got.upper <= 1e-25, || {
                            format!("{setting}: {got:?}, {delta:e}")
                        }),
                    Ok(got) => failures.close(got, delta, 1e-13, near, &setting),
                    Err(error) => failures.expect(false, || format!("{setting}: {error}")),
                }
            }
        }
    }
    failures.finish();
}

#[test]
fn poisson_add_remove() {
    let mut failures = Failures::default();
    for row in accounting("poisson_add_remove") {
        let setting = name("poisson_add_remove", &row);
        let curve = curve_of(&poisson_run(&row, 1), Adversary::A0);
        let got = failures.answer(curve.epsilon(number(&row["delta"])), &setting);
        match row.get("eps") {
            Some(eps) => {
                let worse = number(&row["eps_remove"]).max(number(&row["eps_add"]));
                assert_eq!(number(eps), worse);
                failures.close(got, worse, ROUNDED, NEAR_A0, &setting);
            }
            // Its δ is good to 1e-10 relative; dε/dlnδ is about ½ here.
            None => failures.close(got, number(&row["eps_remove_contour_double"]), 1e-10, NEAR_A0, &setting),
        }
        failures.narrow(&*curve, NEAR_A0, &setting);
    }
    failures.finish();
}

#[test]
fn group_poisson() {
    let mut failures = Failures::default();
    for row in accounting("group_poisson") {
        let g = row["k"].as_u64().expect("a group size");
        let setting = format!("{} g={g}", name("group_poisson", &row));
        let curve = curve_of(&poisson_run(&row, g), Adversary::A0);
        let reference = number(&row["eps_remove"]).max(number(&row["eps_add"]));
        let got = failures.answer(curve.epsilon(number(&row["delta"])), &setting);
        failures.close(got, reference, ROUNDED, NEAR_A0, &setting);
        failures.narrow(&*curve, NEAR_A0, &setting);
    }
    failures.finish();
}

/// The symmetrised curve is the convex hull of the smaller of both directions. Removing leaks more at
/// every ε > 0, so left of the slope −1 the hull is the curve of removing, and right of it, by
/// symmetry, the curve of adding; the references cross between α = 0.25 and α = 0.5.
#[test]
fn tradeoff_of_poisson() {
    let mut failures = Failures::default();
    for row in accounting("tradeoff") {
        let curve = curve_of(&poisson_run(&row, 1), Adversary::A0);
        let zero = curve.point(0.0).expect("a point");
        let (removing, adding) = (numbers(&row["beta_remove"]), numbers(&row["beta_add"]));
        for (i, &alpha) in numbers(&row["alpha"]).iter().enumerate() {
            let setting = format!("{} α={alpha}", name("tradeoff", &row));
            let got = failures.answer(curve.beta(alpha), &setting);
            let smaller = removing[i].min(adding[i]);
            failures.expect(got.lower <= smaller, || format!("{setting}: {got:?} is above {smaller}"));
            if alpha < zero.alpha.lower {
                failures.close(got, removing[i], ROUNDED, NEAR_A0, &setting);
            } else if alpha > zero.beta.upper {
                failures.close(got, adding[i], ROUNDED, NEAR_A0, &setting);
            } else {
                failures.expect(false, || format!("{setting}: on the stretch of slope −1, {zero:?}"));
            }
        }
    }
    failures.finish();
}

#[test]
fn poisson_replace_one() {
    let mut failures = Failures::default();
    for row in accounting("poisson_replace_one") {
        let setting = name("poisson_replace_one", &row);
        let curve = curve_of(&substituting(poisson_run(&row, 1)), Adversary::A0);
        let got = failures.answer(curve.epsilon(number(&row["delta"])), &setting);
        failures.close(got, number(&row["eps"]), ROUNDED, NEAR_A0, &setting);
        failures.narrow(&*curve, NEAR_A0, &setting);
    }
    failures.finish();
}

#[test]
fn fixed_size_subsampling() {
    let mut failures = Failures::default();
    for row in accounting("fixed_size_subsampling_Cp") {
        let (a, b) = row["p"].as_str().and_then(|p| p.split_once('/')).expect("a fraction");
        let (a, b): (u64, u64) = (a.parse().expect("digits"), b.parse().expect("digits"));
        let sigma = number(&row["s_noise_over_substitution_sensitivity"]);
        // The same ms/N by single samples, by groups, and in a larger data set; g = 1 sees no difference.
        for (samples, groups, group_size) in [(b, a, 1), (b, 1, a), (12 * b, 3 * a, 4)] {
            let setting =
                format!("{} N={samples} m={groups} s={group_size}", name("fixed_size_subsampling_Cp", &row));
            let rounds = row["T"].as_u64().expect("rounds");
            let config = run(subsample(samples, groups, group_size), rounds, NoiseScale::Sigma(sigma), 1);
            let curve = curve_of(&config, Adversary::A0);
            let got = failures.answer(curve.epsilon(number(&row["delta"])), &setting);
            failures.close(got, number(&row["eps"]), ROUNDED, NEAR_A0, &setting);
            failures.narrow(&*curve, NEAR_A0, &setting);
            for (alpha, beta) in numbers(&row["alpha"]).into_iter().zip(numbers(&row["beta"])) {
                let got = failures.answer(curve.beta(alpha), &setting);
                failures.close(got, beta, ROUNDED, NEAR_A0, &format!("{setting} α={alpha}"));
            }
        }
    }
    failures.finish();
}

/// Deterministic batches are shuffling with g = 1 and ms | N for A₁, which knows the permutation;
/// the lower bound for an adversary who does not can never exceed it.
#[test]
fn sampling_schemes() {
    let mut failures = Failures::default();
    for row in accounting("sampling_schemes") {
        let (sigma, delta) = (number(&row["sigma"]), number(&row["delta"]));
        let (steps, epochs) =
            (row["steps"].as_u64().expect("steps"), row["epochs"].as_u64().expect("epochs"));
        let setting = format!("sampling_schemes σ={sigma} E={epochs}");
        let shuffled = run(shuffle(8 * steps, 8, 1), steps * epochs, NoiseScale::Sigma(sigma), 1);
        let got = failures.answer(curve_of(&shuffled, Adversary::A1).epsilon(delta), &setting);
        // The references' accuracy: for σ = 1, E = 1 forty digits give 4.3771780956812246, 1.6e-9 away.
        failures.close(got, number(&row["deterministic"]), 3e-9, NEAR_A1, &setting);
        for bound in ["shuffle_lower", "shuffle_lower_noreshuffle"] {
            if let Some(bound) = row.get(bound) {
                failures.expect(number(bound) <= got.upper, || format!("{setting}: {got:?} below {bound}"));
            }
        }
        let poisson = run(poisson(1.0 / steps as f64), steps * epochs, NoiseScale::Multiplier(sigma), 1);
        let got = failures.answer(curve_of(&poisson, Adversary::A0).epsilon(delta), &setting);
        let pessimistic = number(&row["poisson_dpa_pess"]);
        failures.expect(got.lower <= pessimistic, || format!("{setting}: {got:?} above {pessimistic}"));
        // A computation in double precision that failed in two of the rows.
        if let Some(contour) = row["poisson_contour"].as_f64() {
            failures.close(got, contour, 1e-9, NEAR_A0, &setting);
        }
    }
    failures.finish();
}

/// Binomial(93 700, 64/60 000) hits, σ = 2, summed with forty digits.
#[test]
fn adversary_a1_with_forty_digits() {
    let config = run(subsample(60_000, 64, 1), 93_700, NoiseScale::Sigma(2.0), 1);
    let got = curve_of(&config, Adversary::A1).beta(1e-3).expect("an answer");
    let mut failures = Failures::default();
    failures.close(got, 0.031_038_286_917_382_826, ROUNDED, NEAR_A1, "f(0.001)");
    failures.finish();
}

#[test]
fn adversary_a1() {
    /// The references' own accuracy: their file says about 1e-10, and forty digits for the third row
    /// give f(0.001) = 0.031038286917382826, 5.1e-10 away.
    const ACCURACY: f64 = 6e-10;
    let file: Value = serde_json::from_str(include_str!("golden/adversary-a1.json")).expect("valid JSON");
    let rows = file["values"].as_array().expect("a list of rows");
    assert!(!rows.is_empty());
    let mut failures = Failures::default();
    for row in rows {
        let size = |key: &str| row[key].as_u64().expect("a size");
        let (n, m, s) = (size("N"), size("m"), size("s"));
        let kind = row["sampling"].as_str().expect("a name");
        let config = RunConfig {
            differing: size("g"),
            ..RunConfig::single(PhaseConfig {
                sampling: if kind == "shuffle" { shuffle(n, m, s) } else { subsample(n, m, s) },
                length: Length::Epochs(size("E")),
                noise: NoiseScale::Sigma(number(&row["sigma"])),
                filtered: false,
            })
        };
        let setting = format!("{kind} N={n} m={m} s={s} g={}", config.differing);
        let mechanism = config.check().expect("a valid run");
        let mean = law(&mechanism).expect("a law").expect("one noise").mean();
        let expected = number(&row["mean_c2"]);
        failures.expect((mean / expected - 1.0).abs() <= ACCURACY, || format!("{setting}: mean {mean}"));
        let curve = curve_of(&config, Adversary::A1);
        let got = failures.answer(curve.epsilon(number(&row["delta"])), &setting);
        failures.close(got, number(&row["epsilon"]), ACCURACY, NEAR_A1, &setting);
        failures.narrow(&*curve, NEAR_A1, &setting);
        for pair in row["beta"].as_array().expect("a list") {
            let (alpha, beta) = (number(&pair[0]), number(&pair[1]));
            let got = failures.answer(curve.beta(alpha), &setting);
            failures.close(got, beta, ACCURACY, NEAR_A1, &format!("{setting} α={alpha}"));
        }
    }
    failures.finish();
}
