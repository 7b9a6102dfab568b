use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha20Rng;

use super::*;
use crate::dataset::Targets;

/// Rounded normal values by Box and Muller.
fn normal(seed: u64) -> impl FnMut(f64) -> f64 {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    move |deviation| {
        let uniform = |rng: &mut ChaCha20Rng| (rng.next_u64() >> 11) as f64 + 0.5;
        let (u, v) = (uniform(&mut rng) / (1_u64 << 53) as f64, uniform(&mut rng) / (1_u64 << 53) as f64);
        (deviation * (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()).round()
    }
}

fn images(bytes: Vec<u8>, pixels: usize, channels: usize) -> Dataset {
    let targets = Targets::Values(vec![0.0; bytes.len() / pixels / channels]);
    Dataset::new(Inputs::Bytes(bytes), targets, [1, pixels, channels]).unwrap()
}

fn rows(values: Vec<f32>, channels: usize) -> Dataset {
    let targets = Targets::Values(vec![0.0; values.len() / channels]);
    Dataset::new(Inputs::Floats(values), targets, [1, 1, channels]).unwrap()
}

fn distance(one: &[i128], other: &[i128]) -> f64 {
    let squares = one.iter().zip(other).map(|(one, other)| ((one - other) as f64 / STEPS).powi(2));
    squares.sum::<f64>().sqrt()
}

/// All samples of `length` values from a list.
fn every(values: &[u8], length: usize) -> Vec<Vec<u8>> {
    (0..length).fold(vec![vec![]], |samples, _| {
        let longer = |sample: &Vec<u8>| {
            values.iter().map(|value| [&sample[..], &[*value]].concat()).collect::<Vec<_>>()
        };
        samples.iter().flat_map(longer).collect()
    })
}

#[test]
fn the_sensitivity_is_the_largest_over_all_neighbours_and_is_attained() {
    // Pixels and channels; the values hold both ends, the middle and some more.
    for (pixels, channels, values) in [
        (1, 1, (0..=255).collect::<Vec<u8>>()),
        (3, 1, vec![0, 50, 127, 128, 200, 255]),
        (2, 2, vec![0, 64, 128, 255]),
        (1, 3, vec![0, 90, 127, 255]),
    ] {
        let samples = every(&values, pixels * channels);
        // The samples common to both neighbours do not matter; they only make the sums more than one term.
        let common: Vec<u8> = (0..2 * pixels * channels).map(|i| (i * 97 % 256) as u8).collect();
        let with = |sample: &[u8]| moments(&images([&common, sample].concat(), pixels, channels));
        let without = moments(&images(common.clone(), pixels, channels));
        let sums: Vec<Vec<i128>> = samples.iter().map(|sample| with(sample)).collect();

        let substituted =
            sums.iter().flat_map(|one| sums.iter().map(|other| distance(one, other))).fold(0.0, f64::max);
        let bound = sensitivity(Divisor::Samples, channels, false);
        assert!(substituted <= bound && substituted > 0.999_99 * bound, "{substituted} {bound}");

        let added = sums.iter().map(|sum| distance(sum, &without)).fold(0.0, f64::max);
        let bound = sensitivity(Divisor::Expected(1.0), channels, false);
        assert!(added <= bound && added > 0.999_99 * bound, "{added} {bound}");
    }
}

#[test]
fn values_outside_the_range_cannot_move_the_sums_further() {
    let bound = sensitivity(Divisor::Samples, 1, false);
    let sums: Vec<_> =
        [-1e30, -0.5, 0.0, 0.3, 1.0, 7.0, 1e30].map(|value| moments(&rows(vec![value], 1))).to_vec();
    for one in &sums {
        for other in &sums {
            assert!(distance(one, other) <= bound);
        }
    }
}

/// Rows of a table; NaN stands for a missing value.
fn table(values: &[f32], channels: usize) -> Dataset {
    let missing: Vec<bool> = values.iter().map(|value| value.is_nan()).collect();
    let values = values.iter().map(|value| if value.is_nan() { 0.5 } else { *value }).collect();
    rows(values, channels).with_missing(missing)
}

#[test]
fn missing_values_cannot_move_the_sums_of_a_table_further() {
    let each: Vec<f32> = (0..=40).map(|i| i as f32 / 40.0).chain([f32::NAN]).collect();
    for channels in [1, 2] {
        let samples: Vec<Vec<f32>> = match channels {
            1 => each.iter().map(|value| vec![*value]).collect(),
            _ => each.iter().flat_map(|a| each.iter().map(|b| vec![*a, *b])).collect(),
        };
        let common: Vec<f32> = [0.1, f32::NAN, 0.7, 0.4][..2 * channels].to_vec();
        let without = moments(&table(&common, channels));
        let sums: Vec<_> =
            samples.iter().map(|sample| moments(&table(&[&common[..], sample].concat(), channels))).collect();
        let substituted =
            sums.iter().flat_map(|one| sums.iter().map(|other| distance(one, other))).fold(0.0, f64::max);
        let bound = sensitivity(Divisor::Samples, channels, true);
        assert!(substituted <= bound && substituted > 0.999_99 * bound, "{substituted} {bound}");
        let added = sums.iter().map(|sum| distance(sum, &without)).fold(0.0, f64::max);
        let bound = sensitivity(Divisor::Expected(1.0), channels, true);
        assert!(added <= bound && added > 0.999_99 * bound, "{added} {bound}");
    }
}

#[test]
fn the_constants_of_a_table_are_those_of_the_values_that_are_there() {
    let values: Vec<f32> =
        (0..1000).map(|i| if i % 4 == 0 { f32::NAN } else { 0.1 + 0.02 * (i % 7) as f32 }).collect();
    let private = Private { mu: 0.5, divisor: Divisor::Samples };
    let found = release(&table(&values, 1), &private, &mut |_| 0.0).unwrap();
    let (mean, std) = exact(values.iter().filter(|value| !value.is_nan()).map(|value| f64::from(*value)));
    assert!((f64::from(found.mean()[0]) - mean).abs() < 1e-5, "{mean} {found:?}");
    assert!((f64::from(found.std()[0]) - std).abs() < 1e-5, "{std} {found:?}");
}

/// The mean and deviation, computed in the obvious way.
fn exact(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / count;
    (mean, (values.map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt())
}

#[test]
fn without_noise_the_constants_are_the_exact_ones() {
    let mut rng = ChaCha20Rng::seed_from_u64(7);
    let (pixels, channels) = (9, 3);
    let bytes: Vec<u8> =
        (0..500 * pixels * channels).map(|i| rng.random_range(0..=255 >> (i % channels))).collect();
    let set = images(bytes.clone(), pixels, channels);
    let private = Private { mu: 0.5, divisor: Divisor::Samples };
    let found = release(&set, &private, &mut |_| 0.0).unwrap();
    for channel in 0..channels {
        let values = bytes.iter().skip(channel).step_by(channels).map(|byte| f64::from(*byte) / 255.0);
        let (mean, std) = exact(values);
        assert!((f64::from(found.mean()[channel]) - mean).abs() < 1e-6);
        assert!((f64::from(found.std()[channel]) - std).abs() < 1e-6);
    }
    // A public count that is a tenth too large shrinks the sums of the centred moments by as much.
    let private = Private { mu: 0.5, divisor: Divisor::Expected(550.0) };
    let other = release(&set, &private, &mut |_| 0.0).unwrap();
    let centred = |release: &Release| 2.0 * f64::from(release.mean()[1]) - 1.0;
    assert!((centred(&other) * 1.1 - centred(&found)).abs() < 1e-6);
}

#[test]
fn the_noise_has_the_deviation_that_was_paid_for() {
    // 1/2 in every channel: the sum of A is the noise alone. The mean square of n = 2·20,000 standard normal
    // values is χ²_n/n, beyond 1 ± 5.33·√(2/n) with probability 1e-7 as a normal value, and with at most
    // twice that by its skewness √(8/n) (Edgeworth: e^{5.33³·√(8/n)/6} = 1.43). Two relations: false-alarm
    // rate below 4e-7.
    let set = rows(vec![0.5; 2 * 1000], 2);
    for (divisor, delta) in [(Divisor::Samples, 8.0_f64.sqrt()), (Divisor::Expected(1000.0), 2.5_f64.sqrt())]
    {
        let private = Private { mu: 0.25, divisor };
        let mut source = normal(11);
        let releases = 20_000;
        let mut squares = 0.0;
        for _ in 0..releases {
            let found = release(&set, &private, &mut source).unwrap();
            squares += found
                .mean()
                .iter()
                .map(|mean| ((f64::from(*mean) - 0.5) * 2.0 * 1000.0).powi(2))
                .sum::<f64>();
        }
        let ratio = squares / (2 * releases) as f64 / (delta / 0.25).powi(2);
        assert!((ratio - 1.0).abs() < 5.33 * (2.0 / (2 * releases) as f64).sqrt(), "{ratio}");
    }
}

#[test]
fn the_error_of_the_constants_is_the_stated_one() {
    // 2000 rows with two columns; 12 normal values beyond 5.6 in size have probability 12·2.2e-8 < 1e-6: the
    // false-alarm rate.
    let mut rng = ChaCha20Rng::seed_from_u64(3);
    let values: Vec<f32> =
        (0..4000).map(|i| rng.random::<f32>() * if i % 2 == 0 { 1.0 } else { 0.3 }).collect();
    let set = rows(values.clone(), 2);
    let private = Private { mu: 0.5, divisor: Divisor::Samples };
    for seed in 0..3 {
        let found = release(&set, &private, &mut normal(seed)).unwrap();
        // Δ/µ/N/2, with Δ = 2√2.
        assert!((found.mean_error() - 8.0_f64.sqrt() / 0.5 / 2000.0 / 2.0).abs() < 1e-8);
        for channel in 0..2 {
            let (mean, std) = exact(values.iter().skip(channel).step_by(2).map(|value| f64::from(*value)));
            let most = 5.6 * found.mean_error();
            let off = f64::from(found.mean()[channel]) - mean;
            assert!(off.abs() < most, "{off}");
            assert!(off != 0.0);
            // In units of t: var = Q − A², so its error is at most that of Q and (2|A| + error)·error of A.
            let centre = (2.0 * mean - 1.0).abs();
            let variance = 2.0 * most * (1.0 + 2.0 * centre + 2.0 * most);
            let off = 4.0 * (f64::from(found.std()[channel]).powi(2) - std * std);
            assert!(off.abs() < variance, "{off} {variance}");
        }
    }
}

#[test]
fn the_cost_grows_with_the_differing_samples() {
    let set = rows(vec![0.5; 10], 1);
    let found = release(&set, &Private { mu: 0.1, divisor: Divisor::Samples }, &mut |deviation| {
        (0.3 * deviation).round()
    })
    .unwrap();
    assert_eq!([found.mu(1), found.mu(4)], [0.1, 0.4]);
    assert!((found.sensitivity() - 2.0).abs() < 1e-5);
}

#[test]
fn noise_that_drowns_the_variance_still_gives_usable_constants() {
    let set = rows(vec![0.5; 3], 1);
    for z in [-4.0, 4.0] {
        let found = release(&set, &Private { mu: 1e-4, divisor: Divisor::Samples }, &mut |deviation| {
            (z * deviation).round()
        })
        .unwrap();
        assert!((0.0..=1.0).contains(&found.mean()[0]));
        assert!((0.01..=0.5).contains(&found.std()[0]));
    }
}

#[test]
fn settings_without_a_guarantee_are_refused() {
    let set = rows(vec![0.5; 3], 1);
    let refused = |mu, divisor, z: f64| {
        release(&set, &Private { mu, divisor }, &mut |deviation| (z * deviation).round())
            .unwrap_err()
            .to_string()
    };
    for mu in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-300] {
        assert!(refused(mu, Divisor::Samples, 0.0).starts_with("normalisation µ = "));
    }
    for count in [0.0, f64::NAN, f64::INFINITY] {
        assert!(refused(1.0, Divisor::Expected(count), 0.0).starts_with("expected samples = "));
    }
    for z in [f64::NAN, f64::INFINITY, 101.0] {
        assert!(refused(1.0, Divisor::Samples, z).starts_with("noise = "));
    }
    let half = release(&set, &Private { mu: 1.0, divisor: Divisor::Samples }, &mut |_| 0.5);
    assert!(half.unwrap_err().to_string().starts_with("noise = "));
}

/// A channel of images that hardly varies is not divided by noise; a table keeps the smallest deviation.
#[test]
fn a_variance_is_not_taken_for_less_than_its_noise() {
    let private = Private { mu: 0.5, divisor: Divisor::Samples };
    let found = release(&images(vec![128; 1000], 1, 1), &private, &mut |_| 0.0).unwrap();
    // Δ/µ/N = 2/0.5/1000 in units of t², which are four of x².
    assert!((f64::from(found.std()[0]).powi(2) - 0.004 / 4.0).abs() < 1e-6, "{}", found.std()[0]);
}
