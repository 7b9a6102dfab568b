//! Elementwise loops, compiled for AVX-512, AVX2 and the base instruction set and chosen at run time.
//!
//! Every element is computed by the same sequence of single-precision operations whatever the
//! instruction set (no contraction, no reassociation), so the results are the same to the bit.

use std::sync::LazyLock;

static ARCH: LazyLock<pulp::Arch> = LazyLock::new(pulp::Arch::new);

/// Runs a loop with the best instruction set; the closure must be `#[inline(always)]`.
pub(crate) fn fast<R>(operation: impl FnOnce() -> R) -> R {
    ARCH.dispatch(operation)
}

/// f(&mut a, b) for every element.
pub(crate) fn each2(a: &mut [f32], b: &[f32], f: impl Fn(&mut f32, f32)) {
    debug_assert_eq!(a.len(), b.len());
    fast(
        #[inline(always)]
        || {
            for (a, &b) in a.iter_mut().zip(b) {
                f(a, b);
            }
        },
    );
}

/// f(&mut a, &mut b, c) for every element.
pub(crate) fn each3(a: &mut [f32], b: &mut [f32], c: &[f32], f: impl Fn(&mut f32, &mut f32, f32)) {
    debug_assert!(a.len() == b.len() && a.len() == c.len());
    fast(
        #[inline(always)]
        || {
            for ((a, b), &c) in a.iter_mut().zip(b).zip(c) {
                f(a, b, c);
            }
        },
    );
}

/// f(&mut a, &mut b, &mut c, d) for every element.
pub(crate) fn each4(
    a: &mut [f32],
    b: &mut [f32],
    c: &mut [f32],
    d: &[f32],
    f: impl Fn(&mut f32, &mut f32, &mut f32, f32),
) {
    debug_assert!(a.len() == b.len() && a.len() == c.len() && a.len() == d.len());
    fast(
        #[inline(always)]
        || {
            for (((a, b), c), &d) in a.iter_mut().zip(b).zip(c).zip(d) {
                f(a, b, c, d);
            }
        },
    );
}

/// f(&mut a, &mut b, &mut c, &mut d, e) for every element.
pub(crate) fn each5(
    a: &mut [f32],
    b: &mut [f32],
    c: &mut [f32],
    d: &mut [f32],
    e: &[f32],
    f: impl Fn(&mut f32, &mut f32, &mut f32, &mut f32, f32),
) {
    debug_assert!(a.len() == b.len() && a.len() == c.len() && a.len() == d.len() && a.len() == e.len());
    fast(
        #[inline(always)]
        || {
            for ((((a, b), c), d), &e) in a.iter_mut().zip(b).zip(c).zip(d).zip(e) {
                f(a, b, c, d, e);
            }
        },
    );
}

/// out = f(a, b) for every element.
pub(crate) fn write2(out: &mut [f32], a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32) {
    debug_assert!(out.len() == a.len() && out.len() == b.len());
    fast(
        #[inline(always)]
        || {
            for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
                *out = f(a, b);
            }
        },
    );
}

/// Σ x² in double precision, in a fixed order: 16 interleaved sums, then those from left to right.
///
/// The square of a float is exact in double precision, so the relative error is at most
/// (d/16 + 16)·2⁻⁵³; nothing overflows.
pub(crate) fn squares(x: &[f32]) -> f64 {
    const LANES: usize = 16;
    fast(
        #[inline(always)]
        || {
            let mut sums = [0.0f64; LANES];
            let (blocks, rest) = x.as_chunks::<LANES>();
            for block in blocks {
                for (sum, &x) in sums.iter_mut().zip(block) {
                    *sum += f64::from(x) * f64::from(x);
                }
            }
            for (sum, &x) in sums.iter_mut().zip(rest) {
                *sum += f64::from(x) * f64::from(x);
            }
            sums.iter().sum()
        },
    )
}

/// The constants of one step of Adam, in PyTorch's order of operations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adam {
    keep1: f32,
    take1: f32,
    keep2: f32,
    take2: f32,
    eta: f32,
    inverse_root: f32,
    epsilon: f32,
}

impl Adam {
    /// The constants of step t = 1, 2, …
    pub(crate) fn new(eta: f64, beta1: f64, beta2: f64, epsilon: f64, t: u64) -> Self {
        let correction = |beta: f64| 1.0 - beta.powf(t as f64);
        Self {
            keep1: beta1 as f32,
            take1: (1.0 - beta1) as f32,
            keep2: beta2 as f32,
            take2: (1.0 - beta2) as f32,
            eta: (eta / correction(beta1)) as f32,
            inverse_root: (1.0 / correction(beta2).sqrt()) as f32,
            epsilon: epsilon as f32,
        }
    }

    /// What to subtract from a parameter with gradient g.
    #[inline(always)]
    pub(crate) fn step(&self, first: &mut f32, second: &mut f32, g: f32) -> f32 {
        *first = self.keep1 * *first + self.take1 * g;
        *second = self.keep2 * *second + self.take2 * (g * g);
        self.eta * *first / (second.sqrt() * self.inverse_root + self.epsilon)
    }
}
