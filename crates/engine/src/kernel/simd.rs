//! One vector of numbers, for each instruction set: what the multiplication needs and no more.

/// A vector of `LANES` numbers and what can be done with it.
///
/// # Safety
///
/// The methods execute instructions of one instruction set: the caller has seen that the machine
/// has it. `load` and `store` touch `LANES` numbers, `load_first` and `store_first` the first `n` ≤ `LANES` of
/// them.
pub(super) unsafe trait Simd: Copy {
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
pub(super) struct Portable;

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
        unsafe { p.cast::<[f32; 4]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: Self::V) {
        unsafe { p.cast::<[f32; 4]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn store_first(p: *mut f32, v: Self::V, n: usize) {
        unsafe { copy_first(v.as_ptr(), p, n) }
    }
    #[inline(always)]
    unsafe fn load_first(p: *const f32, n: usize) -> Self::V {
        let mut v = [0.0; 4];
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
pub(super) mod x86 {
    use std::arch::x86_64::*;

    use super::Simd;

    #[derive(Clone, Copy)]
    pub(crate) struct Avx2;

    /// Eight places before its middle are on, eight behind it are off.
    static MASKS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

    /// A mask whose first n ≤ 8 places are on.
    #[inline(always)]
    unsafe fn mask(n: usize) -> __m256i {
        unsafe { _mm256_loadu_si256(MASKS.as_ptr().add(8 - n).cast()) }
    }

    // SAFETY: AVX2 and FMA instructions only.
    unsafe impl Simd for Avx2 {
        type V = __m256;
        const LANES: usize = 8;
        const ROWS: [usize; 2] = [8, 6];
        #[inline(always)]
        unsafe fn zero() -> __m256 {
            unsafe { _mm256_setzero_ps() }
        }
        #[inline(always)]
        unsafe fn splat(x: f32) -> __m256 {
            unsafe { _mm256_set1_ps(x) }
        }
        #[inline(always)]
        unsafe fn load(p: *const f32) -> __m256 {
            unsafe { _mm256_loadu_ps(p) }
        }
        #[inline(always)]
        unsafe fn store(p: *mut f32, v: __m256) {
            unsafe { _mm256_storeu_ps(p, v) }
        }
        // A masked store takes many micro-operations on some machines; halves are always cheap.
        #[inline(always)]
        unsafe fn store_first(mut p: *mut f32, v: __m256, n: usize) {
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
            unsafe { _mm256_maskload_ps(p, mask(n)) }
        }
        #[inline(always)]
        unsafe fn first(v: __m256, n: usize) -> __m256 {
            unsafe { _mm256_and_ps(v, _mm256_castsi256_ps(mask(n))) }
        }
        #[inline(always)]
        unsafe fn add(a: __m256, b: __m256) -> __m256 {
            unsafe { _mm256_add_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
            unsafe { _mm256_fmadd_ps(a, b, c) }
        }
        #[inline(always)]
        unsafe fn sum(v: __m256) -> f32 {
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
            unsafe { _mm512_setzero_ps() }
        }
        #[inline(always)]
        unsafe fn splat(x: f32) -> __m512 {
            unsafe { _mm512_set1_ps(x) }
        }
        #[inline(always)]
        unsafe fn load(p: *const f32) -> __m512 {
            unsafe { _mm512_loadu_ps(p) }
        }
        #[inline(always)]
        unsafe fn store(p: *mut f32, v: __m512) {
            unsafe { _mm512_storeu_ps(p, v) }
        }
        #[inline(always)]
        unsafe fn store_first(p: *mut f32, v: __m512, n: usize) {
            let mask = if n >= 16 { u16::MAX } else { (1u16 << n) - 1 };
            unsafe { _mm512_mask_storeu_ps(p, mask, v) }
        }
        #[inline(always)]
        unsafe fn load_first(p: *const f32, n: usize) -> __m512 {
            let mask = if n >= 16 { u16::MAX } else { (1u16 << n) - 1 };
            unsafe { _mm512_maskz_loadu_ps(mask, p) }
        }
        #[inline(always)]
        unsafe fn first(v: __m512, n: usize) -> __m512 {
            let mask = if n >= 16 { u16::MAX } else { (1u16 << n) - 1 };
            unsafe { _mm512_maskz_mov_ps(mask, v) }
        }
        #[inline(always)]
        unsafe fn add(a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_add_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
            unsafe { _mm512_fmadd_ps(a, b, c) }
        }
        #[inline(always)]
        unsafe fn sum(v: __m512) -> f32 {
            unsafe { _mm512_reduce_add_ps(v) }
        }
    }
}
