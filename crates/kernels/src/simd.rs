//! One vector of numbers, for each instruction set: what the products need and no more.
//!
//! The methods cannot be `#[target_feature]` functions, which are not `#[inline(always)]`; they are inlined
//! into callers that are. So the intrinsics are called in unsafe blocks, and what they rest on is the trait's
//! contract.

/// A vector of `LANES` numbers and what can be done with it.
///
/// # Safety
///
/// The methods execute instructions of one instruction set: the caller has made sure that the machine has it.
/// `load` and `store` access `LANES` numbers at `p`, `load_first` and `store_first` the first `n` ≤ `LANES`
/// of them: the caller has made sure that they lie within one slice. An implementation accesses nothing else.
pub(crate) unsafe trait Simd: Copy {
    type V: Copy;
    const LANES: usize;
    /// The most rows of a tile of one vector, and of two: what fits into the registers, those of the sums and
    /// those of the rows' addresses.
    const ROWS: [usize; 2];
    unsafe fn zero() -> Self::V;
    unsafe fn splat(x: f32) -> Self::V;
    unsafe fn load(p: *const f32) -> Self::V;
    unsafe fn store(p: *mut f32, v: Self::V);
    unsafe fn store_first(p: *mut f32, v: Self::V, n: usize);
    /// The first `n` numbers at `p`, and zeros; nothing beyond them is read.
    unsafe fn load_first(p: *const f32, n: usize) -> Self::V;
    /// The first `n` numbers of `v`, and zeros.
    unsafe fn first(v: Self::V, n: usize) -> Self::V;
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    /// a·b + c.
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    unsafe fn sum(v: Self::V) -> f32;
}

/// The first `n` of the numbers at `from`, one by one.
#[inline(always)]
unsafe fn copy_first(from: *const f32, to: *mut f32, n: usize) {
    for i in 0..n {
        // SAFETY: the caller gives room for n numbers.
        unsafe { *to.add(i) = *from.add(i) };
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Portable;

// SAFETY: plain Rust, for every machine.
unsafe impl Simd for Portable {
    type V = [f32; 4];
    const LANES: usize = 4;
    const ROWS: [usize; 2] = [8, 6];
    #[inline(always)]
    unsafe fn zero() -> Self::V {
        [0.0; 4]
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::V {
        [x; 4]
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self::V {
        // SAFETY: the caller vouches for the extent of `p`.
        unsafe { p.cast::<[f32; 4]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: Self::V) {
        // SAFETY: the caller vouches for the extent of `p`.
        unsafe { p.cast::<[f32; 4]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn store_first(p: *mut f32, v: Self::V, n: usize) {
        // SAFETY: the caller vouches for the extent of `p`.
        unsafe { copy_first(v.as_ptr(), p, n) }
    }
    #[inline(always)]
    unsafe fn load_first(p: *const f32, n: usize) -> Self::V {
        let mut v = [0.0; 4];
        // SAFETY: the caller vouches for the extent of `p`.
        unsafe { copy_first(p, v.as_mut_ptr(), n) };
        v
    }
    #[inline(always)]
    unsafe fn first(v: Self::V, n: usize) -> Self::V {
        std::array::from_fn(|i| if i < n { v[i] } else { 0.0 })
    }
    #[inline(always)]
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    unsafe fn sum(v: Self::V) -> f32 {
        (v[0] + v[2]) + (v[1] + v[3])
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86 {
    use std::arch::x86_64::*;

    use super::Simd;

    #[derive(Clone, Copy)]
    pub(crate) struct Avx2;

    /// Eight places that are on, then eight that are off.
    static MASKS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

    /// A mask whose first n ≤ 8 places are on.
    #[inline(always)]
    unsafe fn mask(n: usize) -> __m256i {
        // SAFETY: the caller vouches for AVX2; 8 − n to 16 − n is within the 16 masks.
        unsafe { _mm256_loadu_si256(MASKS.as_ptr().add(8 - n).cast()) }
    }

    // SAFETY: AVX2 and FMA instructions only.
    unsafe impl Simd for Avx2 {
        type V = __m256;
        const LANES: usize = 8;
        const ROWS: [usize; 2] = [8, 6];
        #[inline(always)]
        unsafe fn zero() -> __m256 {
            // SAFETY: the caller vouches for AVX2, FMA and the extent of `p`.
            unsafe { _mm256_setzero_ps() }
        }
        #[inline(always)]
        unsafe fn splat(x: f32) -> __m256 {
            // SAFETY: the caller vouches for AVX2, FMA and the extent of `p`.
            unsafe { _mm256_set1_ps(x) }
        }
        #[inline(always)]
        unsafe fn load(p: *const f32) -> __m256 {
            // SAFETY: the caller vouches for AVX2, FMA and the extent of `p`.
            unsafe { _mm256_loadu_ps(p) }
        }
        #[inline(always)]
        unsafe fn store(p: *mut f32, v: __m256) {
            // SAFETY: the caller vouches for AVX2, FMA and the extent of `p`.
            unsafe { _mm256_storeu_ps(p, v) }
        }
        // A masked store takes many micro-operations on some machines; halves are always cheap.
        #[inline(always)]
        unsafe fn store_first(mut p: *mut f32, v: __m256, n: usize) {
            // SAFETY: the caller vouches for AVX2, FMA and the extent of `p`.
            unsafe {
                if n >= 8 {
                    return _mm256_storeu_ps(p, v);
                }
                let mut half = _mm256_castps256_ps128(v);
                if n >= 4 {
                    _mm_storeu_ps(p, half);
                    p = p.add(4);
                    half = _mm256_extractf128_ps(v, 1);
                }
                if n & 2 != 0 {
                    _mm_storel_pd(p.cast(), _mm_castps_pd(half));
                    p = p.add(2);
                    half = _mm_movehl_ps(half, half);
                }
                if n & 1 != 0 {
                    _mm_store_ss(p, half);
                }
            }
        }
        #[inline(always)]
        unsafe fn load_first(p: *const f32, n: usize) -> __m256 {
            // SAFETY: the caller vouches for AVX2, FMA and the extent of `p`.
            unsafe { _mm256_maskload_ps(p, mask(n)) }
        }
        #[inline(always)]
        unsafe fn first(v: __m256, n: usize) -> __m256 {
            // SAFETY: the caller vouches for AVX2, FMA and the extent of `p`.
            unsafe { _mm256_and_ps(v, _mm256_castsi256_ps(mask(n))) }
        }
        #[inline(always)]
        unsafe fn add(a: __m256, b: __m256) -> __m256 {
            // SAFETY: the caller vouches for AVX2, FMA and the extent of `p`.
            unsafe { _mm256_add_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
            // SAFETY: the caller vouches for AVX2, FMA and the extent of `p`.
            unsafe { _mm256_fmadd_ps(a, b, c) }
        }
        #[inline(always)]
        unsafe fn sum(v: __m256) -> f32 {
            // SAFETY: the caller vouches for AVX2, FMA and the extent of `p`.
            unsafe {
                let four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
                let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
                _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)))
            }
        }
    }

    #[derive(Clone, Copy)]
    pub(crate) struct Avx512;

    // SAFETY: AVX-512F instructions only.
    unsafe impl Simd for Avx512 {
        type V = __m512;
        const LANES: usize = 16;
        const ROWS: [usize; 2] = [8, 8];
        #[inline(always)]
        unsafe fn zero() -> __m512 {
            // SAFETY: the caller vouches for AVX-512F and the extent of `p`.
            unsafe { _mm512_setzero_ps() }
        }
        #[inline(always)]
        unsafe fn splat(x: f32) -> __m512 {
            // SAFETY: the caller vouches for AVX-512F and the extent of `p`.
            unsafe { _mm512_set1_ps(x) }
        }
        #[inline(always)]
        unsafe fn load(p: *const f32) -> __m512 {
            // SAFETY: the caller vouches for AVX-512F and the extent of `p`.
            unsafe { _mm512_loadu_ps(p) }
        }
        #[inline(always)]
        unsafe fn store(p: *mut f32, v: __m512) {
            // SAFETY: the caller vouches for AVX-512F and the extent of `p`.
            unsafe { _mm512_storeu_ps(p, v) }
        }
        #[inline(always)]
        unsafe fn store_first(p: *mut f32, v: __m512, n: usize) {
            let mask = if n >= 16 { u16::MAX } else { (1u16 << n) - 1 };
            // SAFETY: the caller vouches for AVX-512F and the extent of `p`.
            unsafe { _mm512_mask_storeu_ps(p, mask, v) }
        }
        #[inline(always)]
        unsafe fn load_first(p: *const f32, n: usize) -> __m512 {
            let mask = if n >= 16 { u16::MAX } else { (1u16 << n) - 1 };
            // SAFETY: the caller vouches for AVX-512F and the extent of `p`.
            unsafe { _mm512_maskz_loadu_ps(mask, p) }
        }
        #[inline(always)]
        unsafe fn first(v: __m512, n: usize) -> __m512 {
            let mask = if n >= 16 { u16::MAX } else { (1u16 << n) - 1 };
            // SAFETY: the caller vouches for AVX-512F and the extent of `p`.
            unsafe { _mm512_maskz_mov_ps(mask, v) }
        }
        #[inline(always)]
        unsafe fn add(a: __m512, b: __m512) -> __m512 {
            // SAFETY: the caller vouches for AVX-512F and the extent of `p`.
            unsafe { _mm512_add_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
            // SAFETY: the caller vouches for AVX-512F and the extent of `p`.
            unsafe { _mm512_fmadd_ps(a, b, c) }
        }
        #[inline(always)]
        unsafe fn sum(v: __m512) -> f32 {
            // SAFETY: the caller vouches for AVX-512F and the extent of `p`.
            unsafe { _mm512_reduce_add_ps(v) }
        }
    }
}

#[cfg(target_arch = "aarch64")]
pub(crate) mod arm {
    use std::arch::aarch64::*;

    use super::{Simd, copy_first};

    /// Two registers of four: with twelve pairs of sums, a tile uses all 32 registers of the machine.
    #[derive(Clone, Copy)]
    pub(crate) struct Neon;

    // SAFETY: NEON instructions only.
    unsafe impl Simd for Neon {
        type V = [float32x4_t; 2];
        const LANES: usize = 8;
        const ROWS: [usize; 2] = [8, 6];
        #[inline(always)]
        unsafe fn zero() -> Self::V {
            // SAFETY: the caller vouches for NEON.
            unsafe { [vdupq_n_f32(0.0); 2] }
        }
        #[inline(always)]
        unsafe fn splat(x: f32) -> Self::V {
            // SAFETY: the caller vouches for NEON.
            unsafe { [vdupq_n_f32(x); 2] }
        }
        #[inline(always)]
        unsafe fn load(p: *const f32) -> Self::V {
            // SAFETY: the caller vouches for NEON and the extent of `p`.
            unsafe { [vld1q_f32(p), vld1q_f32(p.add(4))] }
        }
        #[inline(always)]
        unsafe fn store(p: *mut f32, v: Self::V) {
            // SAFETY: the caller vouches for NEON and the extent of `p`.
            unsafe {
                vst1q_f32(p, v[0]);
                vst1q_f32(p.add(4), v[1]);
            }
        }
        #[inline(always)]
        unsafe fn store_first(p: *mut f32, v: Self::V, n: usize) {
            // SAFETY: the caller vouches for NEON and the extent of `p`.
            unsafe {
                if n >= 8 {
                    return Self::store(p, v);
                }
                let mut all = [0.0; 8];
                Self::store(all.as_mut_ptr(), v);
                copy_first(all.as_ptr(), p, n);
            }
        }
        #[inline(always)]
        unsafe fn load_first(p: *const f32, n: usize) -> Self::V {
            // SAFETY: the caller vouches for NEON and the extent of `p`.
            unsafe {
                if n >= 8 {
                    return Self::load(p);
                }
                let mut all = [0.0; 8];
                copy_first(p, all.as_mut_ptr(), n);
                Self::load(all.as_ptr())
            }
        }
        #[inline(always)]
        unsafe fn first(v: Self::V, n: usize) -> Self::V {
            let mut all = [0.0; 8];
            // SAFETY: the caller vouches for NEON; n ≤ 8 of the eight numbers are read.
            unsafe {
                Self::store(all.as_mut_ptr(), v);
                Self::load_first(all.as_ptr(), n)
            }
        }
        #[inline(always)]
        unsafe fn add(a: Self::V, b: Self::V) -> Self::V {
            // SAFETY: the caller vouches for NEON.
            unsafe { [vaddq_f32(a[0], b[0]), vaddq_f32(a[1], b[1])] }
        }
        #[inline(always)]
        unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V {
            // SAFETY: the caller vouches for NEON.
            unsafe { [vfmaq_f32(c[0], a[0], b[0]), vfmaq_f32(c[1], a[1], b[1])] }
        }
        #[inline(always)]
        unsafe fn sum(v: Self::V) -> f32 {
            // SAFETY: the caller vouches for NEON.
            unsafe { vaddvq_f32(vaddq_f32(v[0], v[1])) }
        }
    }
}
