//! Laws of c² in integers: `counts[n]/whole` is Pr[c² = n] without any rounding.

use dpsgd_privacy::exposure::{Law, RoundLaw};
use num_bigint::{BigInt, BigUint};
use num_traits::{One, Signed, ToPrimitive, Zero};

#[derive(Clone, Debug, PartialEq)]
pub struct Exact {
    pub counts: Vec<BigUint>,
    pub whole: BigUint,
}

impl Exact {
    pub fn one_point() -> Self {
        Self { counts: vec![BigUint::one()], whole: BigUint::one() }
    }

    pub fn total(&self) -> BigUint {
        self.counts.iter().sum()
    }

    /// The law of the sum of two independent values, term by term.
    pub fn convolve(&self, other: &Self) -> Self {
        let mut counts = vec![BigUint::zero(); self.counts.len() + other.counts.len() - 1];
        for (i, a) in self.counts.iter().enumerate().filter(|(_, a)| !a.is_zero()) {
            for (j, b) in other.counts.iter().enumerate().filter(|(_, b)| !b.is_zero()) {
                counts[i + j] += a * b;
            }
        }
        Self { counts, whole: &self.whole * &other.whole }
    }

    /// The law of the sum of `times` independent values, by repeated convolution.
    pub fn power_by_convolution(&self, times: u64) -> Self {
        (0..times).fold(Self::one_point(), |sum, _| sum.convolve(self))
    }

    /// The same up to c² = `last` by n·r_0·a_n = Σ ((T+1)·d − n)·r_d·a_{n−d}, which is exact in
    /// integers; R(y) = Σ r_d·y^d is the law shifted so that r_0 > 0.
    pub fn power(&self, times: u64, last: usize) -> Self {
        let shift = self.counts.iter().position(|c| !c.is_zero()).unwrap_or(0);
        let steps: Vec<(usize, BigInt)> = self.counts[shift..]
            .iter()
            .enumerate()
            .filter(|(_, c)| !c.is_zero())
            .map(|(d, c)| (d, BigInt::from(c.clone())))
            .collect();
        let start = shift * times as usize;
        let mut counts = vec![BigUint::zero(); start];
        let highest = (self.counts.len() - 1 - shift) * times as usize;
        let mut a: Vec<BigInt> = vec![steps[0].1.pow(times as u32)];
        for n in 1..=highest.min(last.saturating_sub(start)) {
            let mut sum = BigInt::zero();
            for (d, r) in steps.iter().skip(1).take_while(|&&(d, _)| d <= n) {
                let factor = (times as i128 + 1) * *d as i128 - n as i128;
                sum += BigInt::from(factor) * r * &a[n - d];
            }
            a.push(sum / (BigInt::from(n) * &steps[0].1));
        }
        counts.extend(a.into_iter().map(|v| v.to_biguint().expect("a count of outcomes")));
        Self { counts, whole: self.whole.pow(times as u32) }
    }

    pub fn mean(&self) -> f64 {
        let sum: BigUint = self.counts.iter().enumerate().map(|(n, c)| c * n).sum();
        ratio(&sum, &self.whole)
    }

    /// No listed probability is too large by more than its relative error, none too small by more
    /// than that and what is missing, and what is not listed has at most the probability `missing`.
    pub fn check(&self, law: &Law, setting: &str) {
        let mut lost = BigUint::zero();
        let mut unlisted = self.whole.clone();
        for (n, q) in law.iter() {
            let what = format!("{setting}: c² = {n}");
            let count = self.counts.get(n as usize).cloned().unwrap_or_default();
            unlisted -= &count;
            match compare(q, &count, &self.whole, law.relative_error()) {
                Verdict::Within => {}
                Verdict::TooSmall(by) => lost += by,
                // A subnormal number cannot keep a relative error; it is far below `missing`.
                Verdict::TooLarge if q < f64::MIN_POSITIVE => {}
                Verdict::TooLarge => {
                    panic!("{}", describe(&what, q, &count, &self.whole, law.relative_error()))
                }
            }
        }
        let lost = ratio(&(lost >> SHIFT), &self.whole) + ratio(&unlisted, &self.whole);
        assert!(lost <= law.missing(), "{setting}: {lost:e} is lost, {:e} said", law.missing());
    }

    /// The same for the law of k in one round and η = Pr[k > 0]; here the counts are those of k.
    pub fn check_round(&self, law: &RoundLaw, setting: &str) {
        let none = BigUint::zero();
        for k in 0..self.counts.len().max(law.mass().len()) {
            let q = law.mass().get(k).copied().unwrap_or(0.0);
            let count = self.counts.get(k).unwrap_or(&none);
            // A subnormal number cannot keep a relative error.
            if q >= f64::MIN_POSITIVE || ratio(count, &self.whole) >= 2.0 * f64::MIN_POSITIVE {
                assert_close(q, count, &self.whole, law.relative_error(), &format!("{setting}: k = {k}"));
            }
        }
        let hit = &self.whole - &self.counts[0];
        assert_close(law.hit(), &hit, &self.whole, law.relative_error(), &format!("{setting}: η"));
    }

    /// The law of k² from the law of k.
    pub fn squares(&self) -> Self {
        let mut counts = vec![BigUint::zero(); (self.counts.len() - 1).pow(2) + 1];
        for (k, count) in self.counts.iter().enumerate() {
            counts[k * k] = count.clone();
        }
        Self { counts, whole: self.whole.clone() }
    }
}

enum Verdict {
    Within,
    TooLarge,
    /// By this many outcomes beyond the relative error, times 2^SHIFT.
    TooSmall(BigUint),
}

/// Both `value` and `relative` are multiples of 2^−SHIFT/2.
const SHIFT: u64 = 2 * 1075;

/// Compares `value` with count/whole, as integers.
fn compare(value: f64, count: &BigUint, whole: &BigUint, relative: f64) -> Verdict {
    let (value_bits, value_exponent) = decode(value);
    let (relative_bits, relative_exponent) = decode(relative);
    // value = v·2^−e, relative = r·2^−f: |v·whole − count·2^e|·2^f ≤ r·v·whole.
    let scaled = whole * value_bits;
    let difference = BigInt::from(scaled.clone()) - BigInt::from(count << value_exponent);
    let excess = (difference.abs() << relative_exponent) - BigInt::from(scaled * relative_bits);
    if !excess.is_positive() {
        Verdict::Within
    } else if difference.is_positive() {
        Verdict::TooLarge
    } else {
        Verdict::TooSmall(excess.magnitude() << (SHIFT - value_exponent - relative_exponent))
    }
}

fn assert_close(value: f64, count: &BigUint, whole: &BigUint, relative: f64, what: &str) {
    let within = matches!(compare(value, count, whole, relative), Verdict::Within);
    assert!(within, "{}", describe(what, value, count, whole, relative));
}

fn describe(what: &str, value: f64, count: &BigUint, whole: &BigUint, relative: f64) -> String {
    let exact = ratio(count, whole);
    format!("{what}: {value:e}, exactly {exact:e}, relative error {relative:e} said")
}

/// x = bits·2^−exponent for x in [0, 2); a probability may exceed one by its stated error.
fn decode(x: f64) -> (u64, u64) {
    assert!((0.0..2.0).contains(&x), "{x} is not a probability");
    let biased = x.to_bits() >> 52;
    let fraction = x.to_bits() & ((1 << 52) - 1);
    if biased == 0 { (fraction, 1074) } else { (fraction | 1 << 52, 1075 - biased) }
}

/// a/b as the nearest `f64` or its neighbour, whatever the sizes of a and b.
pub fn ratio(a: &BigUint, b: &BigUint) -> f64 {
    if a.is_zero() {
        return 0.0;
    }
    let shift = b.bits() as i64 - a.bits() as i64 + 64;
    let quotient = if shift >= 0 { (a << shift as u64) / b } else { a / (b << (-shift) as u64) };
    // 64 or 65 bits; the two factors keep clear of overflow and of early underflow.
    let half = (-shift / 2) as i32;
    quotient.to_f64().unwrap_or(f64::INFINITY) * 2f64.powi(half) * 2f64.powi((-shift) as i32 - half)
}

pub fn binomial(n: u64, k: u64) -> BigUint {
    if k > n {
        return BigUint::zero();
    }
    (0..k).fold(BigUint::one(), |value, i| value * (n - i) / (i + 1))
}

/// A polynomial in x (differing samples placed) whose coefficients are polynomials in y.
type Placed = Vec<Vec<BigUint>>;

/// W[t][k] = C(m, k)·[x^t]((1+x)^s − 1)^k, and with filtering 2^t·Σ_k W[t][k]·C(k, j)/2^k: the
/// weights of t differing samples in a round so that k groups are hit (and kept).
fn weights(groups: u64, group_size: u64, differing: u64, filtered: bool) -> Placed {
    let g = differing as usize;
    let mut group: Vec<BigUint> = (0..=differing).map(|j| binomial(group_size, j)).collect();
    group[0] = BigUint::zero();
    let mut hits = vec![vec![BigUint::zero(); g + 1]; g + 1];
    let mut power = vec![BigUint::zero(); g + 1];
    power[0] = BigUint::one();
    for k in 0..=g {
        for (by_k, ways) in hits.iter_mut().zip(&power) {
            by_k[k] = binomial(groups, k as u64) * ways;
        }
        power = (0..=g).map(|t| (0..=t).map(|j| &group[j] * &power[t - j]).sum()).collect();
    }
    if !filtered {
        return hits;
    }
    (0..=g)
        .map(|t| {
            (0..=g)
                .map(|kept| {
                    (kept..=t)
                        .map(|k| (&hits[t][k] * binomial(k as u64, kept as u64)) << (t - k))
                        .sum::<BigUint>()
                })
                .collect()
        })
        .collect()
}

/// C(n, t) for t = 0..=g, times 2^t with filtering: samples that are not used.
fn unused(n: u64, differing: u64, filtered: bool) -> Vec<BigUint> {
    (0..=differing).map(|t| binomial(n, t) << if filtered { t } else { 0 }).collect()
}

/// The law of k in one round of a uniform subset: q_k = Σ_t W[t][k]·C(N−ms, g−t)/C(N, g).
pub fn round(samples: u64, groups: u64, group_size: u64, differing: u64, filtered: bool) -> Exact {
    let g = differing as usize;
    let w = weights(groups, group_size, differing, filtered);
    let rest = unused(samples - groups * group_size, differing, filtered);
    let counts = (0..=g).map(|k| (0..=g).map(|t| &w[t][k] * &rest[g - t]).sum()).collect();
    Exact { counts, whole: unused(samples, differing, filtered)[g].clone() }
}

/// The law of c² over the first `rounds` rounds of an epoch.
pub fn epoch(
    samples: u64,
    groups: u64,
    group_size: u64,
    rounds: u64,
    differing: u64,
    filtered: bool,
) -> Exact {
    let g = differing as usize;
    let w = weights(groups, group_size, differing, filtered);
    let mut one: Placed = vec![vec![BigUint::zero(); g * g + 1]; g + 1];
    for t in 0..=g {
        for k in 0..=t {
            one[t][k * k] = w[t][k].clone();
        }
    }
    one.iter_mut().for_each(trim);
    let mut power: Placed = vec![vec![]; g + 1];
    power[0] = vec![BigUint::one()];
    for _ in 0..rounds {
        power = product(&power, &one);
    }
    let rest = unused(samples - rounds * groups * group_size, differing, filtered);
    let mut counts = vec![BigUint::zero(); g * g + 1];
    for (t, row) in power.iter().enumerate() {
        for (n, value) in row.iter().enumerate() {
            counts[n] += value * &rest[g - t];
        }
    }
    Exact { counts, whole: unused(samples, differing, filtered)[g].clone() }
}

fn product(a: &Placed, b: &Placed) -> Placed {
    let g = a.len() - 1;
    let mut out = vec![vec![BigUint::zero(); g * g + 1]; g + 1];
    for t in 0..=g {
        for j in 0..=t {
            for (n, x) in a[j].iter().enumerate().filter(|(_, x)| !x.is_zero()) {
                for (l, y) in b[t - j].iter().enumerate().filter(|(_, y)| !y.is_zero()) {
                    out[t][n + l] += x * y;
                }
            }
        }
        trim(&mut out[t]);
    }
    out
}

fn trim(row: &mut Vec<BigUint>) {
    while row.last().is_some_and(Zero::is_zero) {
        row.pop();
    }
}
