//! The one matrix product that convolutions and linear layers are made of.
//!
//! C\[r\]\[j\] = Σ_k A\[row r + step k\] · B\[step k\]\[j\]: the rows of A are anywhere in its buffer, and k
//! walks two nested strides in A and in B. So a convolution needs no copy of its patches:
//!
//! * forward: a row is an output pixel, k runs over the kernel's rows and, contiguous in NHWC, over
//!   its columns and channels;
//! * weight gradient: a row is a place in the kernel, k runs over the pixels;
//! * input gradient: a row is an output pixel, k runs over its channels, and C, which is added to,
//!   is the patch of the input that the pixel saw.
//!
//! A tile of rows × vectors of C stays in registers while k runs. The order of summation depends on
//! the shapes alone, never on threads.
//!
//! It was measured beside im2col with the `gemm` crate, which reaches 0.8 of its throughput on the paper's
//! CNN: the copy of the patches costs more than a better blocked product gains at the sizes of one sample. It
//! reaches 70 to 86 GFLOP/s a core there, where a large sgemm reaches 97 to 103.

use crate::simd::{Portable, Simd};
use crate::{Level, SLACK};

/// How k walks: `outer` times `inner` steps, with the strides of both in A and in B.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    /// Steps of the outer loop.
    pub outer: usize,
    /// Steps of the inner loop.
    pub inner: usize,
    /// Strides in A of the outer and of the inner loop.
    pub a: [usize; 2],
    /// Strides in B of the outer and of the inner loop.
    pub b: [usize; 2],
}

impl Walk {
    /// A single loop.
    #[inline]
    pub fn line(steps: usize, a: usize, b: usize) -> Self {
        Self { outer: 1, inner: steps, a: [0, a], b: [0, b] }
    }

    /// The largest offset that a walk of at least one step reaches. It saturates, so that no stride can wrap
    /// around and pass for a small one.
    #[inline]
    fn furthest(&self, strides: [usize; 2]) -> usize {
        let outer = (self.outer - 1).saturating_mul(strides[0]);
        outer.saturating_add((self.inner - 1).saturating_mul(strides[1]))
    }
}

/// Where rows begin in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    list: &'a [u32],
    furthest: usize,
}

impl<'a> Places<'a> {
    /// These places.
    #[inline]
    pub fn new(list: &'a [u32]) -> Self {
        Self { list, furthest: list.iter().max().map_or(0, |&place| place as usize) }
    }
}

/// [`Places`] that are used repeatedly.
#[derive(Clone, Debug, Default)]
pub struct Table {
    list: Vec<u32>,
    furthest: usize,
}

impl Table {
    /// The same places, without scanning them again.
    #[inline]
    pub fn places(&self) -> Places<'_> {
        Places { list: &self.list, furthest: self.furthest }
    }

    /// How many there are.
    #[inline]
    pub fn rows(&self) -> usize {
        self.list.len()
    }
}

impl FromIterator<usize> for Table {
    /// Panics at a place of 2³² or more.
    fn from_iter<I: IntoIterator<Item = usize>>(places: I) -> Self {
        let list: Vec<u32> =
            places.into_iter().map(|place| u32::try_from(place).expect("a place below 2³²")).collect();
        let furthest = Places::new(&list).furthest;
        Self { list, furthest }
    }
}

/// The operands of a product.
#[derive(Clone, Copy, Debug)]
pub struct Product<'a> {
    /// A.
    pub a: &'a [f32],
    /// Where each row begins in A.
    pub rows: Places<'a>,
    /// B, with [`SLACK`] numbers beyond what is used.
    pub b: &'a [f32],
    /// From the first column of one panel of [`Level::panel`] columns to that of the next.
    pub panel: usize,
    /// How k walks.
    pub walk: Walk,
    /// The number of columns.
    pub columns: usize,
}

/// What happens to a finished tile of C.
type Finish = u8;
const STORE: Finish = 0;
const ADD: Finish = 1;
/// Store, and sum the squares of what is stored.
const SQUARE: Finish = 2;

/// A tile of R rows and V vectors: the inner loop.
#[inline(always)]
unsafe fn tile<S: Simd, const R: usize, const V: usize>(
    a: [*const f32; R],
    b: *const f32,
    walk: &Walk,
) -> [[S::V; V]; R] {
    // SAFETY: the driver has checked the furthest place in A and in B.
    unsafe {
        let mut sum = [[S::zero(); V]; R];
        for outer in 0..walk.outer {
            let mut at = outer * walk.a[0];
            let mut from = b.add(outer * walk.b[0]);
            for _ in 0..walk.inner {
                let mut column = [S::zero(); V];
                for (v, column) in column.iter_mut().enumerate() {
                    *column = S::load(from.add(v * S::LANES));
                }
                for r in 0..R {
                    let x = S::splat(*a[r].add(at));
                    for v in 0..V {
                        sum[r][v] = S::fma(x, column[v], sum[r][v]);
                    }
                }
                at += walk.a[1];
                from = from.wrapping_add(walk.b[1]);
            }
        }
        sum
    }
}

/// Where the result goes.
struct Destination<'a> {
    c: *mut f32,
    places: Places<'a>,
    bias: Option<&'a [f32]>,
}

impl Destination<'_> {
    /// Puts one vector into C; returns the new sum of squares.
    #[inline(always)]
    unsafe fn put<S: Simd, const F: Finish>(
        &self,
        at: *mut f32,
        column: usize,
        value: S::V,
        square: S::V,
    ) -> S::V {
        // SAFETY: `Product::check` has checked C, `run` the bias with its slack.
        unsafe {
            let value = match self.bias {
                _ if F == ADD => S::add(value, S::load(at)),
                Some(bias) => S::add(value, S::load(bias.as_ptr().add(column))),
                None => value,
            };
            S::store(at, value);
            if F == SQUARE { S::fma(value, value, square) } else { square }
        }
    }

    /// The same for the last `n` columns: nothing beyond them is read or written.
    #[inline(always)]
    unsafe fn put_first<S: Simd, const F: Finish>(
        &self,
        at: *mut f32,
        column: usize,
        value: S::V,
        n: usize,
        square: S::V,
    ) -> S::V {
        // SAFETY: as in `put`.
        unsafe {
            let value = match self.bias {
                _ if F == ADD => S::add(value, S::load_first(at, n)),
                Some(bias) => S::add(value, S::load(bias.as_ptr().add(column))),
                None => value,
            };
            S::store_first(at, value, n);
            if F == SQUARE {
                let value = S::first(value, n);
                S::fma(value, value, square)
            } else {
                square
            }
        }
    }
}

/// All rows of one block of V vectors of columns, in tiles of nearly equal height.
#[inline(always)]
unsafe fn block<S: Simd, const F: Finish, const V: usize>(
    product: &Product,
    b: *const f32,
    column: usize,
    destination: &Destination,
) -> f64 {
    let mut total = 0.0;
    let rows = product.rows.list.len();
    let count = rows.div_ceil(S::ROWS[V - 1]);
    let (height, higher) = (rows / count, rows % count);
    let mut first = 0;
    // The columns of the last vector that count.
    let last = (product.columns - column - (V - 1) * S::LANES).min(S::LANES);
    macro_rules! tiles {
        ($($rows:literal)*) => {
            for i in 0..count {
                let rows = height + usize::from(i < higher);
                match rows {
                    // SAFETY: `Product::check` has checked all rows and places.
                    $($rows => unsafe {
                        let a: [*const f32; $rows] = std::array::from_fn(|r| {
                            product.a.as_ptr().add(*product.rows.list.get_unchecked(first + r) as usize)
                        });
                        let sums = tile::<S, $rows, V>(a, b, &product.walk);
                        let mut square = S::zero();
                        for r in 0..$rows {
                            let place = *destination.places.list.get_unchecked(first + r) as usize;
                            let at = destination.c.add(place + column);
                            for v in 0..V - 1 {
                                let (at, column) = (at.add(v * S::LANES), column + v * S::LANES);
                                square = destination.put::<S, F>(at, column, sums[r][v], square);
                            }
                            let (at, column) = (at.add((V - 1) * S::LANES), column + (V - 1) * S::LANES);
                            square = if last == S::LANES {
                                destination.put::<S, F>(at, column, sums[r][V - 1], square)
                            } else {
                                destination.put_first::<S, F>(at, column, sums[r][V - 1], last, square)
                            };
                        }
                        // Tile by tile into double precision, so that the sum of many squares stays exact
                        // to a few units of single precision.
                        if F == SQUARE {
                            total += f64::from(S::sum(square));
                        }
                    },)*
                    _ => unreachable!("no tile is higher"),
                }
                first += rows;
            }
        };
    }
    tiles!(1 2 3 4 5 6 7 8);
    total
}

/// V vectors of a single row, the last of which may be a part of one. One row has too few sums to keep the
/// multipliers busy, so it takes more columns at a time.
#[inline(always)]
unsafe fn wide<S: Simd, const F: Finish, const V: usize>(
    product: &Product,
    column: usize,
    destination: &Destination,
) -> f64 {
    let last = (product.columns - column - (V - 1) * S::LANES).min(S::LANES);
    // SAFETY: `Product::check` has checked the row, its place and all columns.
    unsafe {
        let a = [product.a.as_ptr().add(*product.rows.list.get_unchecked(0) as usize)];
        let sums = tile::<S, 1, V>(a, product.b.as_ptr().add(column), &product.walk);
        let at = destination.c.add(*destination.places.list.get_unchecked(0) as usize + column);
        let mut square = S::zero();
        for (v, &sum) in sums[0].iter().enumerate() {
            let (at, column) = (at.add(v * S::LANES), column + v * S::LANES);
            square = if v + 1 < V || last == S::LANES {
                destination.put::<S, F>(at, column, sum, square)
            } else {
                destination.put_first::<S, F>(at, column, sum, last, square)
            };
        }
        if F == SQUARE { f64::from(S::sum(square)) } else { 0.0 }
    }
}

/// A single row, eight vectors at a time.
#[inline(always)]
unsafe fn single<S: Simd, const F: Finish>(product: &Product, destination: &Destination) -> f64 {
    let mut total = 0.0;
    for column in (0..product.columns).step_by(8 * S::LANES) {
        // SAFETY: as in `wide`.
        total += unsafe {
            match (product.columns - column).div_ceil(S::LANES) {
                1 => wide::<S, F, 1>(product, column, destination),
                2 => wide::<S, F, 2>(product, column, destination),
                3 => wide::<S, F, 3>(product, column, destination),
                4 => wide::<S, F, 4>(product, column, destination),
                5 => wide::<S, F, 5>(product, column, destination),
                6 => wide::<S, F, 6>(product, column, destination),
                7 => wide::<S, F, 7>(product, column, destination),
                _ => wide::<S, F, 8>(product, column, destination),
            }
        };
    }
    total
}

/// All columns, a panel at a time, so that the panel of B stays in the cache while the rows pass.
#[inline(always)]
unsafe fn drive<S: Simd, const F: Finish>(product: &Product, destination: &Destination) -> f64 {
    let panel = 2 * S::LANES;
    if product.rows.list.len() == 1 && product.panel == panel {
        // SAFETY: as above.
        return unsafe { single::<S, F>(product, destination) };
    }
    let mut total = 0.0;
    for (i, column) in (0..product.columns).step_by(panel).enumerate() {
        // SAFETY: `Product::check` has checked the last panel.
        unsafe {
            let b = product.b.as_ptr().add(i * product.panel);
            total += if product.columns - column > S::LANES {
                block::<S, F, 2>(product, b, column, destination)
            } else {
                block::<S, F, 1>(product, b, column, destination)
            };
        }
    }
    total
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2<const F: Finish>(product: &Product, destination: &Destination) -> f64 {
    // SAFETY: the caller has checked the product.
    unsafe { drive::<crate::simd::x86::Avx2, F>(product, destination) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx2,fma")]
unsafe fn avx512<const F: Finish>(product: &Product, destination: &Destination) -> f64 {
    // SAFETY: the caller has checked the product.
    unsafe { drive::<crate::simd::x86::Avx512, F>(product, destination) }
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
unsafe fn neon<const F: Finish>(product: &Product, destination: &Destination) -> f64 {
    // SAFETY: the caller has checked the product.
    unsafe { drive::<crate::simd::arm::Neon, F>(product, destination) }
}

impl Product<'_> {
    /// Panics where a row, a panel or a place in C would reach beyond its slice.
    fn check(&self, level: Level, c: usize, places: Places) {
        assert_eq!(self.rows.list.len(), places.list.len(), "as many places as rows");
        let a = self.rows.furthest.saturating_add(self.walk.furthest(self.walk.a));
        assert!(a < self.a.len(), "rows beyond A");
        // What is read of one panel of B: whole vectors, at every step of the walk.
        let read = |panel: usize, columns: usize| {
            let first = panel.saturating_mul(self.panel).saturating_add(self.walk.furthest(self.walk.b));
            first.saturating_add(columns.next_multiple_of(level.lanes()))
        };
        let last = (self.columns - 1) / level.panel();
        let end = read(last, self.columns - last * level.panel());
        let before = if last > 0 { read(last - 1, level.panel()) } else { 0 };
        assert!(end.max(before) <= self.b.len(), "columns beyond B");
        assert!(places.furthest.saturating_add(self.columns) <= c, "places beyond C");
    }

    fn run<const F: Finish>(&self, level: Level, c: &mut [f32], places: Places, bias: Option<&[f32]>) -> f64 {
        let level = level.check();
        if self.rows.list.is_empty() || self.columns == 0 || self.walk.outer == 0 || self.walk.inner == 0 {
            return 0.0;
        }
        self.check(level, c.len(), places);
        assert!(
            bias.is_none_or(|bias| bias.len() >= self.columns.saturating_add(SLACK)),
            "columns beyond the bias"
        );
        let destination = Destination { c: c.as_mut_ptr(), places, bias };
        // SAFETY: the extents were checked, and `Level::check` has made sure of the instructions.
        unsafe {
            match level {
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => avx2::<F>(self, &destination),
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => avx512::<F>(self, &destination),
                #[cfg(target_arch = "aarch64")]
                Level::Neon => neon::<F>(self, &destination),
                _ => drive::<Portable, F>(self, &destination),
            }
        }
    }

    /// C = A·B + bias. The bias has [`SLACK`] numbers beyond its end.
    #[inline]
    pub fn store(&self, level: Level, bias: Option<&[f32]>, c: &mut [f32], places: Places) {
        self.run::<STORE>(level, c, places, bias);
    }

    /// C += A·B. Places may overlap; they are added to one after the other.
    #[inline]
    pub fn add(&self, level: Level, c: &mut [f32], places: Places) {
        self.run::<ADD>(level, c, places, None);
    }

    /// C = A·B; returns the sum of the squares of C.
    #[inline]
    pub fn store_squared(&self, level: Level, c: &mut [f32], places: Places) -> f64 {
        self.run::<SQUARE>(level, c, places, None)
    }
}
