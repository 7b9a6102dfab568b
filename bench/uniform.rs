//! Random questions that are the same everywhere.

/// Uniform numbers in [0, 1): SplitMix64 (Steele, Lea, Flood 2014).
pub struct Uniform(pub u64);

impl Uniform {
    /// The next number.
    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 11) as f64 * 0.5_f64.powi(53)
    }

    /// Uniform in its logarithm.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        (low.ln() + self.next() * (high / low).ln()).exp()
    }

    /// One of these, each as likely.
    pub fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        from[(self.next() * from.len() as f64) as usize]
    }
}
