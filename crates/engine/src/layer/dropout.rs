//! Dropout: each value is zero with some probability, and larger in return where it is not.
//!
//! Which values are dropped is a function of a seed, of the position of the sample in its group and of how
//! many gradients the group has taken, so that a group's result is a function of its samples and of its own
//! random bits. The seed comes from outside; it is expanded by splitmix64 (Steele, Lea and Flood, OOPSLA
//! 2014), which need not be secret or strong: seeds of different groups are independent, and that is all the
//! analysis asks.

/// A dropout layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dropout {
    pub input: usize,
    pub output: usize,
    /// Which of the network's dropout layers it is, from 0.
    pub number: u64,
    /// The share of values that is dropped, below 1.
    pub rate: f32,
}

/// A step of splitmix64: bits that depend on `key` and on `place`.
fn bits(key: u64, place: u64) -> u64 {
    let mut z = key.wrapping_add(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(place.wrapping_add(1)));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What decides for sample number `member` of a group in the gradient number `draw` that is taken of it.
pub(crate) fn key(seed: u64, draw: u64, member: usize) -> u64 {
    bits(bits(seed, draw), member as u64)
}

impl Dropout {
    /// What each value is multiplied by: 0, or 1/(1 − rate), so that its mean stays. Without a key all stay
    /// as they are.
    pub fn factors(&self, key: Option<u64>, factors: &mut [f32]) {
        let Some(key) = key else { return factors.fill(1.0) };
        let layer = bits(key, self.number);
        // A share of all 32-bit words: the difference from the rate is below 2⁻³².
        let below = (f64::from(self.rate) * 4_294_967_296.0) as u32;
        let kept = 1.0 / (1.0 - self.rate);
        for (i, pair) in factors.chunks_mut(2).enumerate() {
            let words = bits(layer, i as u64);
            for (factor, word) in pair.iter_mut().zip([words as u32, (words >> 32) as u32]) {
                *factor = if word < below { 0.0 } else { kept };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of dropped values over many keys, and how often two layers, two samples, two gradients and
    /// two groups agree. The seeds are fixed; a fair generator would fail one of these 15 counts, each more
    /// than 6 standard deviations off, with probability below 4e-8.
    #[test]
    fn the_share_is_the_rate_and_keys_do_not_repeat_each_other() {
        const KEYS: u64 = 400;
        const VALUES: usize = 501;
        let n = KEYS as f64 * VALUES as f64;
        for rate in [0.1f32, 0.5, 0.8] {
            let drawn = |number: u64, seed: u64, draw: u64, member: usize| {
                let mut factors = [0.0; VALUES];
                let dropout = Dropout { input: 0, output: 1, number, rate };
                dropout.factors(Some(key(seed, draw, member)), &mut factors);
                factors.map(|factor| factor == 0.0)
            };
            let within =
                |count: usize, p: f64| (count as f64 - n * p).abs() < 6.0 * (n * p * (1.0 - p)).sqrt();
            let rate = f64::from(rate);
            let count = |other: &dyn Fn(u64) -> [bool; VALUES]| -> usize {
                let agree =
                    |seed| drawn(0, seed, 0, 0).iter().zip(other(seed)).filter(|(a, b)| **a == *b).count();
                (0..KEYS).map(agree).sum()
            };
            assert!(within(count(&|_| [true; VALUES]), rate), "share {rate}");
            let same = rate * rate + (1.0 - rate) * (1.0 - rate);
            assert!(within(count(&|seed| drawn(1, seed, 0, 0)), same), "layers {rate}");
            assert!(within(count(&|seed| drawn(0, seed, 0, 1)), same), "samples {rate}");
            assert!(within(count(&|seed| drawn(0, seed, 1, 0)), same), "gradients {rate}");
            assert!(within(count(&|seed| drawn(0, seed + KEYS, 0, 0)), same), "groups {rate}");
        }
    }

    #[test]
    fn without_a_key_nothing_is_dropped_and_what_is_kept_keeps_the_mean() {
        let dropout = Dropout { input: 0, output: 1, number: 0, rate: 0.75 };
        let mut factors = [0.0; 7];
        dropout.factors(None, &mut factors);
        assert_eq!(factors, [1.0; 7]);
        dropout.factors(Some(1), &mut factors);
        assert!(factors.iter().all(|factor| *factor == 0.0 || *factor == 4.0));
    }
}
