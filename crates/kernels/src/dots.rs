//! Products of rows with rows: the input gradient of a linear layer, from the weights as they are.

use crate::Level;
use crate::simd::{Portable, Simd};

/// C\[i\]\[j\] = Σ_k A\[i\]\[k\] · B\[j\]\[k\], both contiguous in k.
#[derive(Clone, Copy, Debug)]
pub struct Dots<'a> {
    /// A, whose rows are `a_stride` apart and zero from k to the next multiple of [`SLACK`](crate::SLACK).
    pub a: &'a [f32],
    /// The distance between rows of A.
    pub a_stride: usize,
    /// The number of rows of A.
    pub a_rows: usize,
    /// B, with [`SLACK`](crate::SLACK) numbers beyond its end.
    pub b: &'a [f32],
    /// The distance between rows of B.
    pub b_stride: usize,
    /// The number of rows of B, and so of columns of C.
    pub b_rows: usize,
    /// The length of a product.
    pub k: usize,
}

#[inline(always)]
unsafe fn dot_tile<S: Simd, const R: usize, const Q: usize>(
    dots: &Dots,
    i: usize,
    j: usize,
    c: *mut f32,
    c_stride: usize,
) {
    // SAFETY: `Dots::store` has checked the extents.
    unsafe {
        let mut sum = [[S::zero(); Q]; R];
        let (a, b) = (dots.a.as_ptr().add(i * dots.a_stride), dots.b.as_ptr().add(j * dots.b_stride));
        for k in (0..dots.k).step_by(S::LANES) {
            let mut other = [S::zero(); Q];
            for (q, other) in other.iter_mut().enumerate() {
                *other = S::load(b.add(q * dots.b_stride + k));
            }
            for (r, sum) in sum.iter_mut().enumerate() {
                let x = S::load(a.add(r * dots.a_stride + k));
                for q in 0..Q {
                    sum[q] = S::fma(x, other[q], sum[q]);
                }
            }
        }
        for (r, sum) in sum.iter().enumerate() {
            for (q, &sum) in sum.iter().enumerate() {
                *c.add((i + r) * c_stride + j + q) = S::sum(sum);
            }
        }
    }
}

#[inline(always)]
unsafe fn dot_all<S: Simd>(dots: &Dots, c: *mut f32, c_stride: usize) {
    // SAFETY: `Dots::store` has checked the extents.
    unsafe {
        let mut i = 0;
        while i < dots.a_rows {
            let mut j = 0;
            if i + 4 <= dots.a_rows {
                while j + 3 <= dots.b_rows {
                    dot_tile::<S, 4, 3>(dots, i, j, c, c_stride);
                    j += 3;
                }
                while j < dots.b_rows {
                    dot_tile::<S, 4, 1>(dots, i, j, c, c_stride);
                    j += 1;
                }
                i += 4;
            } else {
                while j + 8 <= dots.b_rows {
                    dot_tile::<S, 1, 8>(dots, i, j, c, c_stride);
                    j += 8;
                }
                while j < dots.b_rows {
                    dot_tile::<S, 1, 1>(dots, i, j, c, c_stride);
                    j += 1;
                }
                i += 1;
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn dots_avx2(dots: &Dots, c: *mut f32, c_stride: usize) {
    // SAFETY: the caller has checked the extents.
    unsafe { dot_all::<crate::simd::x86::Avx2>(dots, c, c_stride) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx2,fma")]
unsafe fn dots_avx512(dots: &Dots, c: *mut f32, c_stride: usize) {
    // SAFETY: the caller has checked the extents.
    unsafe { dot_all::<crate::simd::x86::Avx512>(dots, c, c_stride) }
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
unsafe fn dots_neon(dots: &Dots, c: *mut f32, c_stride: usize) {
    // SAFETY: the caller has checked the extents.
    unsafe { dot_all::<crate::simd::arm::Neon>(dots, c, c_stride) }
}

impl Dots<'_> {
    /// Writes C, whose rows are `c_stride` apart.
    #[inline]
    pub fn store(&self, level: Level, c: &mut [f32], c_stride: usize) {
        let level = level.check();
        if self.a_rows == 0 || self.b_rows == 0 {
            return;
        }
        // Saturating, so that no stride can wrap around and pass for a small one.
        let end =
            |rows: usize, stride: usize, row: usize| (rows - 1).saturating_mul(stride).saturating_add(row);
        let k = self.k.div_ceil(level.lanes()).saturating_mul(level.lanes());
        assert!(end(self.a_rows, self.a_stride, k) <= self.a.len(), "rows beyond A");
        assert!(end(self.b_rows, self.b_stride, k) <= self.b.len(), "rows beyond B");
        assert!(end(self.a_rows, c_stride, self.b_rows) <= c.len(), "rows beyond C");
        let c = c.as_mut_ptr();
        // SAFETY: the extents were checked, and `Level::check` has made sure of the instructions.
        unsafe {
            match level {
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => dots_avx2(self, c, c_stride),
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => dots_avx512(self, c, c_stride),
                #[cfg(target_arch = "aarch64")]
                Level::Neon => dots_neon(self, c, c_stride),
                _ => dot_all::<Portable>(self, c, c_stride),
            }
        }
    }
}
