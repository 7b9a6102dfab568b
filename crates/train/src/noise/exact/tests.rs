use super::super::refine;
use super::*;

/// Values made elsewhere; its first lines say how.
const REFERENCE: &str = include_str!("reference.txt");

fn lines(kind: &str) -> impl Iterator<Item = Vec<&'static str>> {
    let wanted = format!("{kind} ");
    REFERENCE
        .lines()
        .filter(move |line| line.starts_with(&wanted))
        .map(|line| line.split(' ').skip(1).collect())
}

/// χ² of counts against shares, all bins of fewer than 20 expected together in one.
fn chi_square(found: &[(f64, f64)]) -> (f64, usize) {
    let (mut sum, mut bins, mut rest) = (0.0, 0, (0.0, 0.0));
    for &(count, expected) in found {
        if expected < 20.0 {
            rest = (rest.0 + count, rest.1 + expected);
        } else {
            sum += (count - expected).powi(2) / expected;
            bins += 1;
        }
    }
    if rest.1 >= 20.0 {
        sum += (rest.0 - rest.1).powi(2) / rest.1;
        bins += 1;
    }
    (sum, bins)
}

/// The law, bin by bin, against probabilities with 50 digits. χ² with k degrees of freedom exceeds k +
/// 2√(k·x) + 2x with probability below e⁻ˣ (Laurent and Massart 2000): x = 15 is 3e-7 for each of the three
/// deviations, below 1e-6 in all.
#[test]
fn the_law_is_the_rounded_gaussian() {
    const DRAWS: usize = 4_000_000;
    for deviation in ["0.4", "1.75", "6.5"] {
        let steps: f64 = deviation.parse().unwrap();
        let mut values = vec![0.0; DRAWS];
        draws(&Randomness::from_seed(11, 0), 3, steps, &mut values);
        let mut found = Vec::new();
        let mut inside = 0.0;
        for line in lines("bin").filter(|line| line[0] == deviation) {
            let (n, share): (f64, f64) = (line[1].parse().unwrap(), line[2].parse().unwrap());
            for n in if n == 0.0 { vec![0.0] } else { vec![-n, n] } {
                let count = values.iter().filter(|value| **value == n).count() as f64;
                found.push((count, share * DRAWS as f64));
                inside += count;
            }
        }
        // Nothing but whole numbers, and hardly anything beyond the table, which ends at 1e-9.
        assert!(DRAWS as f64 - inside <= 2.0, "{inside}");
        let (sum, bins) = chi_square(&found);
        let k = (bins - 1) as f64;
        let most = k + 2.0 * (k * 15.0).sqrt() + 30.0;
        assert!(bins >= 3 && sum < most, "{deviation}: {sum} of {most}, {bins} bins");
    }
}

/// Far tails, the axes, the cells next to 0 and 1, and ordinary points: every value is that of 400 digits,
/// whether double precision decides it or not.
#[test]
fn every_value_is_that_of_many_digits() {
    let (mut fast, mut slow, mut largest) = (0, 0, 0.0f64);
    for line in lines("pair") {
        let word = |i: usize| line[i].parse::<u64>().unwrap();
        let (first, sine) = ((word(0), word(1)), line[4] == "1");
        let (steps, expected): (f64, f64) = (line[5].parse().unwrap(), line[6].parse().unwrap());
        let further =
            |word: u64| -> [u64; 16] { std::array::from_fn(|i| if i == 0 { word } else { 1 << 63 }) };
        assert_eq!(
            refine::rounded(first, (&further(word(2)), &further(word(3))), sine, steps),
            expected,
            "{line:?}"
        );
        slow += 1;
        largest = largest.max(expected.abs() / steps);
        let words = [first.0 >> 32, first.0 & 0xffff_ffff, first.1 >> 32, first.1 & 0xffff_ffff]
            .map(|word| word as u32);
        for level in Level::available() {
            let mut out = [0.0; 2];
            rounded_normal(level, &words, steps, &mut out);
            let value = out[usize::from(sine)];
            if !value.is_nan() {
                assert_eq!(value, expected, "{line:?}");
                fast += 1;
            }
        }
    }
    // 2⁻⁶⁵ is 9.5 deviations from the middle; further bits go on from there.
    assert!(slow > 150 && fast > 100 && largest > 8.0, "{slow} {fast} {largest}");
}

/// The path that is rarely taken, taken for every number: the same whole numbers. And with a deviation for
/// which it is taken often, so that both paths meet in one block.
#[test]
fn both_paths_agree() {
    let randomness = Randomness::from_seed(12, 0);
    for (round, steps, most) in [(0, 3.0, 0.01), (1, 2_097_152.0, 0.01), (2, 5e11, 0.5)] {
        let mut words = [0; WORDS];
        randomness.stream(Purpose::Noise, round).fill(&mut words);
        let mut decided = vec![0.0; BLOCK];
        rounded_normal(Level::best(), &words, steps, &mut decided);
        let mut drawn = vec![0.0; BLOCK];
        draws(&randomness, round, steps, &mut drawn);
        let mut undecided = 0;
        for place in (0..BLOCK).step_by(if steps > 1e6 { 1 } else { 7 }) {
            let pair = place % (BLOCK / 2);
            let refinement = Refinement::new(&randomness, round, pair);
            let refined = refinement.rounded(first_bits(&words, pair), place >= BLOCK / 2, steps);
            assert_eq!(drawn[place], refined);
            if decided[place].is_nan() {
                undecided += 1;
            } else {
                assert_eq!(decided[place], refined);
            }
        }
        assert!(f64::from(undecided) < most * BLOCK as f64, "{undecided}");
        assert!(steps < 1e11 || undecided > 50, "{undecided}");
    }
}

/// A number that no finite precision decides: D·R·cos in the middle of two whole numbers to 1e-25. The first
/// bits leave it open, further bits on either side of the middle lead to the two neighbours.
#[test]
fn further_bits_decide_what_the_first_leave_open() {
    // cos 0 = 1 and R for this U₁; D puts R·D at 1000.5 to double precision, and the cell of U₁ spans the
    // middle.
    let first = (0x2345_6789_abcd_ef01_u64, 0_u64);
    let u = (first.0 as f64 + 0.5) / 2f64.powi(64);
    let radius = (-2.0 * u.ln()).sqrt();
    let (mut below, mut above) = (false, false);
    for i in -40..=40 {
        let steps = 1000.5 / radius * (1.0 + f64::from(i) * 2f64.powi(-52));
        for word in [0, 1 << 62, 1 << 63, u64::MAX] {
            let z = refine::rounded(first, (&[word; 16], &[0; 16]), false, steps);
            assert!(z == 1000.0 || z == 1001.0, "{z}");
            (below, above) = (below || z == 1000.0, above || z == 1001.0);
            let words = [(first.0 >> 32) as u32, first.0 as u32, 0, 0];
            let mut out = [0.0; 2];
            assert!(rounded_normal(Level::best(), &words, steps, &mut out) && out[0].is_nan());
        }
    }
    assert!(below && above);
}

#[test]
fn the_grid_costs_little_and_is_counted() {
    for (sensitivity, dimension, sigma) in [
        (2.0, 1, 1.0),
        (0.2, 61_706, 1.79),
        (1e-6, 100_000_000, 0.05),
        (3e5, 7, 1e5),
        (0.013, 1_000_000, 20.0),
    ] {
        let exact = Exact::for_sensitivity(sensitivity, dimension, sigma);
        let root = (dimension as f64).sqrt();
        // The guarantee: substitution and adding or removing.
        assert!(exact.deviation() >= sigma * (sensitivity + root * exact.step()));
        assert!(exact.deviation() >= 2.0 * sigma * (0.5 * sensitivity + root * exact.step()));
        assert!(exact.deviation() < 1.0006 * sigma * sensitivity, "{exact:?}");
        assert!(exact.step().log2().fract() == 0.0 && exact.steps <= LARGEST_DEVIATION);
    }
}

/// What leaves is a whole number of steps, the sum's nearest one plus the noise; a sum far outside the range
/// is cut.
#[test]
fn the_noised_sum_is_on_the_grid() {
    let randomness = Randomness::from_seed(13, 0);
    for (bound, sigma) in [(1.0, 2.0), (0.013, 0.7), (1e-6, 0.05)] {
        let exact = Exact::for_sensitivity(2.0 * bound, 1000, sigma);
        let mut u: Vec<f64> = (0..1000).map(|i| f64::from(i) * bound / 777.0).collect();
        u[7] = 1e300;
        let mut out = vec![0.0; 1000];
        exact.add((&randomness, 5), 0, &u, &mut out);
        let mut z = vec![0.0; 1000];
        draws(&randomness, 5, exact.steps, &mut z);
        for (i, ((out, u), z)) in out.iter().zip(&u).zip(&z).enumerate() {
            let nearest = if i == 7 { MOST_STEPS } else { (u / exact.step).round_ties_even() };
            assert_eq!(*out, ((nearest + z) * exact.step) as f32);
        }
    }
}

#[test]
fn a_block_does_not_depend_on_its_neighbours() {
    let randomness = Randomness::from_seed(5, 0);
    let mut long = vec![0.0; 3 * BLOCK + 7];
    draws(&randomness, 4, 1e6, &mut long);
    for length in [1, 2, 3, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 5] {
        let mut short = vec![0.0; length];
        draws(&randomness, 4, 1e6, &mut short);
        assert_eq!(short, long[..length]);
    }
}
