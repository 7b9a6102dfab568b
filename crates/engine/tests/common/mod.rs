//! What the tests share: samples in memory and a small source of numbers.
#![allow(dead_code, reason = "each test file uses part of it")]

use dpsgd_engine::{Label, Samples};

/// Samples in memory.
pub struct Memory {
    pub inputs: Vec<Vec<f32>>,
    pub classes: Vec<u32>,
    pub values: Option<Vec<Vec<f32>>>,
}

impl Samples for Memory {
    fn count(&self) -> usize {
        self.inputs.len()
    }
    fn copy_input(&self, index: u32, out: &mut [f32]) {
        out.copy_from_slice(&self.inputs[index as usize]);
    }
    fn label(&self, index: u32) -> Label<'_> {
        match &self.values {
            Some(values) => Label::Values(&values[index as usize]),
            None => Label::Class(self.classes[index as usize]),
        }
    }
}

/// A fixed sequence of numbers in [0, 1): splitmix64.
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

    /// Random samples of a shape, of `classes` classes.
    pub fn samples(&mut self, count: usize, numbers: usize, classes: u32) -> Memory {
        Memory {
            inputs: (0..count).map(|_| self.vector(numbers)).collect(),
            classes: (0..count).map(|_| (self.unit() * classes as f32) as u32).collect(),
            values: None,
        }
    }
}
