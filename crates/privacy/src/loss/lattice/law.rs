//! Laws of the loss on a lattice, their sums, and expectations of sums.

use dpsgd_kernels::fast;

/// Masses below this are not carried on.
pub(super) const TINY: f64 = 1e-290;

/// A law under P: `mass[i]` at index `first` + i, and what counts as infinite.
#[derive(Clone, Debug)]
pub(super) struct Law {
    pub first: i64,
    pub mass: Vec<f64>,
    pub above: f64,
}

/// For a law b and every index J: Σ b_j, Σ b_j·e^{−(j−J)h} and Σ b_j·(1 − e^{−(j−J)h}) over j ≥ J.
#[derive(Debug)]
pub(super) struct Sums {
    first: i64,
    pub total: Vec<f64>,
    discounted: Vec<f64>,
    gained: Vec<f64>,
    pub above: f64,
}

/// Which of the two ends a law is for.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum End {
    Upper,
    Lower,
}

/// Indices that are kept.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub bottom: i64,
    pub top: i64,
}

/// The product of all powers, but for the last multiplication.
pub(super) fn two_powers(laws: Vec<(Law, u64)>, window: Window, end: End) -> Option<(Law, Law)> {
    let alone = laws.len() == 1;
    let mut list: Vec<Law> = Vec::new();
    for (law, times) in laws {
        let mut power = law;
        let mut left = times;
        while left > 0 {
            if alone && left == 2 && list.is_empty() {
                return Some((power.clone(), power));
            }
            if left & 1 == 1 {
                list.push(power.clone());
            }
            left >>= 1;
            if left > 0 {
                power = convolve(&power, &power, window, end);
            }
        }
    }
    while list.len() > 2 {
        let (a, b) = (list.remove(0), list.remove(0));
        list.push(convolve(&a, &b, window, end));
    }
    let b = list.pop()?;
    Some((list.pop()?, b))
}

/// Rows that are added together.
const ROWS: usize = 4;

/// The law of the sum of two.
fn convolve(a: &Law, b: &Law, window: Window, end: End) -> Law {
    let first = (a.first + b.first).max(window.bottom);
    let last = (a.last() + b.last()).min(window.top).max(first);
    let size = (last - first + 1) as usize;
    let mut mass = vec![0.0; size];
    // Zeros on both sides, so that every row of a block has the same range.
    let mut padded = vec![0.0; b.mass.len() + 2 * (ROWS - 1)];
    padded[ROWS - 1..ROWS - 1 + b.mass.len()].copy_from_slice(&b.mass);
    let start = a.first + b.first - first;
    fast(
        #[inline(always)]
        || {
            for (block, rows) in a.mass.chunks(ROWS).enumerate() {
                let mut row = [0.0; ROWS];
                row[..rows.len()].copy_from_slice(rows);
                if row == [0.0; ROWS] {
                    continue;
                }
                // Where the block's first term lands; the window cuts both ends.
                let at = start + (block * ROWS) as i64;
                let skip = (-at).max(0) as usize;
                let count = b.mass.len() + ROWS - 1;
                let room = (size as i64 - at).max(0) as usize;
                let until = count.min(room);
                if skip >= until {
                    continue;
                }
                let out = &mut mass[(at + skip as i64) as usize..(at + until as i64) as usize];
                let n = out.len();
                let b0 = &padded[skip + 3..][..n];
                let b1 = &padded[skip + 2..][..n];
                let b2 = &padded[skip + 1..][..n];
                let b3 = &padded[skip..][..n];
                for i in 0..n {
                    out[i] += (row[0] * b0[i] + row[1] * b1[i]) + (row[2] * b2[i] + row[3] * b3[i]);
                }
            }
        },
    );
    // What lies outside the window: sums of b up to and from every index.
    let mut up_to = Vec::with_capacity(b.mass.len() + 1);
    up_to.push(0.0);
    for &m in &b.mass {
        up_to.push(up_to[up_to.len() - 1] + m);
    }
    let mut from = vec![0.0; b.mass.len() + 1];
    for (j, &m) in b.mass.iter().enumerate().rev() {
        from[j] = from[j + 1] + m;
    }
    let (mut below, mut above) = (0.0, 0.0);
    let clamped = |j: i64| j.clamp(0, b.mass.len() as i64) as usize;
    for (i, &m) in a.mass.iter().enumerate() {
        let offset = a.first + i as i64 + b.first;
        below += m * up_to[clamped(first - offset)];
        above += m * from[clamped(last + 1 - offset)];
    }
    let mut law = Law { first, mass, above: 0.0 };
    match end {
        End::Upper => {
            law.mass[0] += below;
            let (all_a, all_b) = (a.mass.iter().sum::<f64>(), b.mass.iter().sum::<f64>());
            law.above = above + a.above * (all_b + b.above) + all_a * b.above;
        }
        End::Lower => law.mass[size - 1] += above,
    }
    law.without_tiny(end);
    law
}

impl Law {
    fn last(&self) -> i64 {
        self.first + self.mass.len() as i64 - 1
    }

    /// Sets masses to zero that would only make subnormal products; the upper end counts them as infinite.
    pub(super) fn without_tiny(&mut self, end: End) {
        let mut gone = 0.0;
        for mass in self.mass.iter_mut().filter(|m| **m < TINY) {
            gone += *mass;
            *mass = 0.0;
        }
        if end == End::Upper {
            self.above += gone;
        }
    }
}

impl Sums {
    pub(super) fn new(law: &Law, step: f64) -> Self {
        let n = law.mass.len();
        let (mut total, mut discounted, mut gained) = (vec![0.0; n + 1], vec![0.0; n + 1], vec![0.0; n + 1]);
        let (kept, lost) = ((-step).exp(), -(-step).exp_m1());
        for j in (0..n).rev() {
            total[j] = total[j + 1] + law.mass[j];
            discounted[j] = kept * discounted[j + 1] + law.mass[j];
            gained[j] = gained[j + 1] + lost * discounted[j + 1];
        }
        Self { first: law.first, total, discounted, gained, above: law.above }
    }

    /// Σ b_j·(1 − e^{−(j−J)h − ahead}) over j ≥ J, with `share` = 1 − e^{−ahead}, and what counts as infinite.
    #[inline]
    pub(super) fn expectation(&self, index: i64, share: f64, ahead: f64, step: f64) -> f64 {
        let j = index - self.first;
        if j >= self.total.len() as i64 {
            return self.above;
        }
        if j >= 0 {
            let j = j as usize;
            return self.above + self.gained[j] + share * self.discounted[j];
        }
        // All of b lies above, by −j steps more.
        let share = -(-(ahead - j as f64 * step)).exp_m1();
        self.above + self.gained[0] + share * self.discounted[0]
    }

    pub(super) fn tail(&self, index: i64) -> f64 {
        let j = (index - self.first).clamp(0, self.total.len() as i64 - 1) as usize;
        self.above + self.total[j]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn convolution_is_the_double_sum() {
        let law = |first: i64, mass: &[f64], above: f64| Law { first, mass: mass.to_vec(), above };
        let a = law(-3, &[0.1, 0.2, 0.0, 0.3, 0.15, 0.05, 0.1], 0.1);
        let b = law(-2, &[0.3, 0.1, 0.25, 0.05, 0.2], 0.1);
        for (bottom, top) in [(-10, 20), (-4, 3), (-2, 6), (0, 1)] {
            let window = Window { bottom, top };
            let mut expected = std::collections::BTreeMap::new();
            let mut above = a.above + b.above - a.above * b.above;
            let mut cut = 0.0;
            for (i, x) in a.mass.iter().enumerate() {
                for (j, y) in b.mass.iter().enumerate() {
                    let at = a.first + b.first + (i + j) as i64;
                    if at > top {
                        above += x * y;
                        cut += x * y;
                    }
                    *expected.entry(at).or_insert(0.0) += x * y;
                }
            }
            let (upper, lower) = (convolve(&a, &b, window, End::Upper), convolve(&a, &b, window, End::Lower));
            assert!((upper.above - above).abs() < 1e-15, "{upper:?} {above}");
            let below: f64 = expected.range(..bottom).map(|(_, v)| v).sum();
            for (&at, &value) in expected.range(bottom..=top) {
                let got = |law: &Law| law.mass[(at - law.first) as usize];
                let raised = if at == upper.first { below } else { 0.0 };
                let lowered = if at == lower.last() { cut } else { 0.0 };
                assert!((got(&upper) - value - raised).abs() < 1e-15, "{at} {upper:?}");
                assert!((got(&lower) - value - lowered).abs() < 1e-15, "{at} {lower:?}");
            }
        }
    }
}
