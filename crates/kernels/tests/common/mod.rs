//! A fixed sequence of numbers, and how much of a test Miri sees.

#![allow(dead_code, reason = "every file of tests uses a part of it")]

/// Under Miri, which is some ten thousand times slower, a test looks at one case out of this many.
pub const EVERY: usize = if cfg!(miri) { 7 } else { 1 };
/// The same for long rows of numbers.
pub const EVERY_NUMBER: usize = if cfg!(miri) { 397 } else { 1 };

/// Numbers in [0, 1): splitmix64.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn unit(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 24) as f32
    }

    pub fn vector(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| 2.0 * self.unit() - 1.0).collect()
    }
}
