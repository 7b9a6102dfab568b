//! Whether many whole numbers look like independent draws from round(N(0, D²)).
//!
//! Every statistic has a limit that a correct sampler exceeds with probability at most [`FALSE_ALARMS`]
//! divided by the number of statistics. For sums of 10⁶ and more terms the central limit theorem stands for
//! their law.

use dpsgd_kernels::fast;
use dpsgd_privacy::normal;

/// The probability that any statistic of a correct sampler exceeds its limit.
pub const FALSE_ALARMS: f64 = 1e-6;
/// Bins a deviation.
const FINE: f64 = 256.0;
/// The bins reach this many deviations to each side.
const REACH: f64 = 7.0;
/// The lowest bits that are looked at.
const LOW: usize = 256;
/// Distances that are counted as tails.
const TAILS: [f64; 4] = [3.0, 4.0, 5.0, 6.0];

/// What was found, and what a correct sampler may show.
pub struct Statistic {
    pub name: String,
    pub found: f64,
    pub limit: f64,
}

impl Statistic {
    pub fn holds(&self) -> bool {
        self.found.abs() <= self.limit
    }
}

/// Sums of products of numbers that must be independent.
#[derive(Default)]
struct Products {
    name: String,
    pairs: f64,
    values: f64,
    squares: f64,
}

impl Products {
    /// Of `x[i]` and `y[i]`, in units of D: both products have variance 1.
    fn add(&mut self, x: &[f64], y: &[f64]) {
        let (values, squares) = fast(
            #[inline(always)]
            || {
                let (mut values, mut squares) = ([0.0; 16], [0.0; 16]);
                for (x, y) in x.as_chunks::<16>().0.iter().zip(y.as_chunks::<16>().0) {
                    for i in 0..16 {
                        values[i] += x[i] * y[i];
                        squares[i] += 0.5 * (x[i] * x[i] - 1.0) * (y[i] * y[i] - 1.0);
                    }
                }
                (values.iter().sum::<f64>(), squares.iter().sum::<f64>())
            },
        );
        self.pairs += (x.len().min(y.len()) / 16 * 16) as f64;
        self.values += values;
        self.squares += squares;
    }
}

/// Counts over all rounds.
pub struct Law {
    deviation: f64,
    /// The whole numbers of a bin, and the first bin's smallest.
    width: i64,
    first: i64,
    bins: Vec<u64>,
    low: [u64; LOW],
    tails: [[u64; 2]; TAILS.len()],
    powers: [f64; 4],
    largest: f64,
    count: u64,
    lags: Vec<usize>,
    within: Vec<Products>,
    across: Vec<Products>,
    /// The last rounds in units of D, the newest first.
    last: Vec<Vec<f64>>,
}

impl Law {
    /// For D = `deviation`, looking at coordinates of a round that are `lags` apart and at up to `rounds`
    /// rounds apart.
    pub fn new(deviation: f64, lags: &[usize], rounds: usize) -> Self {
        let width = (deviation / FINE).ceil() as i64;
        let half = (REACH * deviation / width as f64).ceil() as i64;
        let named = |name: String| Products { name, ..Products::default() };
        Self {
            deviation,
            width,
            first: -half * width,
            bins: vec![0; 2 * half as usize],
            low: [0; LOW],
            tails: [[0; 2]; TAILS.len()],
            powers: [0.0; 4],
            largest: 0.0,
            count: 0,
            lags: lags.to_vec(),
            within: lags.iter().map(|lag| named(format!("{lag} coordinates apart"))).collect(),
            across: (1..=rounds).map(|lag| named(format!("{lag} rounds apart"))).collect(),
            last: Vec::new(),
        }
    }

    /// Takes the numbers of one round, always as many.
    pub fn see(&mut self, values: &[f64]) {
        let last = self.bins.len() as i64 - 1;
        for &value in values {
            let whole = value as i64;
            let bin = (whole - self.first).div_euclid(self.width);
            self.bins[bin.clamp(0, last) as usize] += 1;
            self.low[whole.rem_euclid(LOW as i64) as usize] += 1;
        }
        let x: Vec<f64> = values.iter().map(|value| value / self.deviation).collect();
        let mut powers = [0.0; 4];
        for &x in &x {
            let square = x * x;
            // Hermite's polynomials: uncorrelated, of mean 0 and variance 1, 2, 6, 24.
            powers[0] += x;
            powers[1] += square - 1.0;
            powers[2] += x * (square - 3.0);
            powers[3] += square * square - 6.0 * square + 3.0;
            if x.abs() > TAILS[0] {
                for (tail, distance) in self.tails.iter_mut().zip(TAILS) {
                    tail[usize::from(x > 0.0)] += u64::from(x.abs() > distance);
                }
                self.largest = self.largest.max(x.abs());
            }
        }
        self.powers.iter_mut().zip(powers).for_each(|(sum, power)| *sum += power);
        self.count += values.len() as u64;
        for (products, &lag) in self.within.iter_mut().zip(&self.lags) {
            products.add(&x, x.get(lag..).unwrap_or_default());
        }
        for (products, earlier) in self.across.iter_mut().zip(&self.last) {
            products.add(&x, earlier);
        }
        self.last.insert(0, x);
        self.last.truncate(self.across.len());
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// The largest distance from 0, in deviations, of those beyond the first tail.
    pub fn largest(&self) -> f64 {
        self.largest
    }

    /// P(Z < whole) for the rounded Gaussian.
    fn below(&self, whole: i64) -> f64 {
        normal::cdf((whole as f64 - 0.5) / self.deviation)
    }

    /// Every statistic with its limit.
    pub fn statistics(&self) -> Vec<Statistic> {
        let tests = 2 + 2 * TAILS.len() + 4 + 2 * (self.within.len() + self.across.len());
        let each = FALSE_ALARMS / tests as f64;
        let normal_limit = -normal::quantile(0.5 * each);
        let n = self.count as f64;
        let mut all = Vec::new();
        let mut add = |name: String, found: f64, limit: f64| all.push(Statistic { name, found, limit });

        let edge = |bin: usize| self.below(self.first + bin as i64 * self.width);
        let bins: Vec<(u64, f64)> = (0..self.bins.len())
            .map(|bin| {
                // The outer bins hold everything beyond them too.
                let low = if bin == 0 { 0.0 } else { edge(bin) };
                let high = if bin + 1 == self.bins.len() { 1.0 } else { edge(bin + 1) };
                (self.bins[bin], n * (high - low))
            })
            .collect();
        let (sum, freedom) = chi_square(&bins);
        add(format!("χ² of {} bins", freedom + 1.0), sum, chi_square_limit(freedom, each));
        let low: Vec<(u64, f64)> = self.low.iter().map(|count| (*count, n / LOW as f64)).collect();
        let (sum, freedom) = chi_square(&low);
        add(format!("χ² of the number modulo {LOW}"), sum, chi_square_limit(freedom, each));
        for (tail, distance) in self.tails.iter().zip(TAILS) {
            // |x| > k is |Z| ≥ the next whole number after kD.
            let expected = n * self.below(-((distance * self.deviation).floor() as i64));
            for (side, count) in ["below −", "above "].iter().zip(tail) {
                let found = *count as f64 - expected;
                add(
                    format!("tail {side}{distance} D, less {expected:.2} expected"),
                    found,
                    bernstein(expected, each),
                );
            }
        }
        // Rounding adds 1/12 to the variance of D², which the second polynomial would see for small D.
        let shift = 1.0 / (12.0 * self.deviation * self.deviation);
        let means = [0.0, shift, 0.0, 0.0];
        for (i, name) in ["mean", "variance", "skewness", "kurtosis"].iter().enumerate() {
            let variance: f64 = [1.0, 2.0, 6.0, 24.0][i];
            add(
                format!("{name}, in its deviations"),
                (self.powers[i] - n * means[i]) / (n * variance).sqrt(),
                normal_limit,
            );
        }
        for products in self.within.iter().chain(&self.across) {
            for (what, sum) in [("values", products.values), ("squares", products.squares)] {
                let name = format!("correlation of {what} {}, in its deviations", products.name);
                add(name, sum / products.pairs.max(1.0).sqrt(), normal_limit);
            }
        }
        all
    }
}

/// χ² and its degrees of freedom; bins of fewer than 20 expected are one.
fn chi_square(bins: &[(u64, f64)]) -> (f64, f64) {
    let (mut sum, mut used, mut rest) = (0.0, 0.0, (0.0, 0.0));
    let mut take = |count: f64, expected: f64| {
        sum += (count - expected).powi(2) / expected;
        used += 1.0;
    };
    for &(count, expected) in bins {
        match expected < 20.0 {
            true => rest = (rest.0 + count as f64, rest.1 + expected),
            false => take(count as f64, expected),
        }
    }
    if rest.1 >= 20.0 {
        take(rest.0, rest.1);
    }
    (sum, used - 1.0)
}

/// χ² with k degrees of freedom exceeds it with probability at most p (Laurent and Massart 2000).
fn chi_square_limit(k: f64, p: f64) -> f64 {
    let x = -p.ln();
    k + 2.0 * (k * x).sqrt() + 2.0 * x
}

/// A count with this mean is farther from it with probability at most p (Bernstein, both sides).
fn bernstein(mean: f64, p: f64) -> f64 {
    let x = -(0.5 * p).ln();
    x / 3.0 + (x * x / 9.0 + 2.0 * mean * x).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dpsgd_train::Randomness;
    use dpsgd_train::noise::exact;

    const D: f64 = 1_048_576.0;

    /// The statistics that do not hold when `spoil` has had its hands on the noise.
    fn alarms(spoil: impl Fn(u64, &mut [f64])) -> Vec<String> {
        let randomness = Randomness::from_seed(16, 0);
        let mut law = Law::new(D, &[1, 2, 1024], 2);
        let mut values = vec![0.0; 1 << 16];
        for round in 0..64 {
            exact::draws(&randomness, round, D, &mut values);
            spoil(round, &mut values);
            law.see(&values);
        }
        law.statistics().into_iter().filter(|found| !found.holds()).map(|found| found.name).collect()
    }

    #[test]
    fn right_noise_passes() {
        assert_eq!(alarms(|_, _| {}), Vec::<String>::new());
    }

    #[test]
    fn wrong_noise_is_found() {
        let found = |part: &str, spoil: &dyn Fn(u64, &mut [f64])| {
            let alarms = alarms(spoil);
            assert!(alarms.iter().any(|name| name.contains(part)), "{part}: {alarms:?}");
        };
        let every = |change: fn(f64) -> f64| {
            move |_: u64, values: &mut [f64]| values.iter_mut().for_each(|z| *z = change(*z))
        };
        found("variance", &every(|z| (0.995 * z).round()));
        found("mean", &every(|z| z + 0.005 * D));
        found("modulo", &every(|z| 2.0 * (z / 2.0).round()));
        found("tail above 4", &every(|z| z.min(4.0 * D)));
        found("χ² of", &every(|z| if z.abs() < 0.002 * D { z.signum() * 0.003 * D } else { z }.round()));
        found("values 2 coordinates", &|_, values| {
            for i in (2..values.len()).rev() {
                values[i] = (0.9999 * values[i] + 0.01 * values[i - 2]).round();
            }
        });
        // As large as its partner: signs do not show it, squares do.
        found("squares 1024 coordinates", &|_, values| {
            let (first, second) = values.split_at_mut(1024);
            for (i, z) in second[..1024].iter_mut().enumerate() {
                *z = if i % 2 == 0 { first[i].abs() } else { -first[i].abs() };
            }
        });
        // Every other round uses the noise of the round before it.
        found("1 rounds apart", &|round, values| {
            let randomness = Randomness::from_seed(16, 0);
            exact::draws(&randomness, round & !1, D, values);
        });
    }
}
