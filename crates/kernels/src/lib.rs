//! The arithmetic that dominates the running time, compiled for the instruction set of the machine
//! it runs on.
//!
//! Every kernel comes in several versions, one for each [`Level`]: AVX-512, AVX2 with fused multiply-add, ARM
//! NEON, and portable Rust. [`Level::best`] picks the fastest one the machine supports, once per process.
//!
//! ```
//! use dpsgd_kernels::{Level, each2, elementwise};
//!
//! let mut x = [0.0, 1.0, -1.0];
//! elementwise::tanh(Level::best(), &mut x); // a kernel at a chosen level
//! each2(&mut x, &[1.0, 1.0, 1.0], |x, y| *x += 2.0 * y); // any loop, at the best level
//! assert_eq!(x[0], 2.0);
//! ```
//!
//! # Unsafe code
//!
//! This is the only crate of the workspace that contains `unsafe` code, and every function it exports is
//! safe. There are two kinds of unsafe operation:
//!
//! * calling a function compiled for more instructions than the baseline, sound because the level was
//!   detected first ([`Level::run`]);
//! * unchecked loads and stores in [`multiply`] and [`dots`], sound because the extent of every slice is
//!   checked once, before the loops, and in [`arrange`]; those of [`chacha`] are checked one by one.
//!
//! Miri reports no vector extensions, so under Miri everything runs at [`Level::Portable`], pointer
//! arithmetic included.
//!
//! # Same bits at every level
//!
//! Rust neither contracts nor reorders floating-point operations. Everything except [`multiply`] and [`dots`]
//! therefore gives the same bits at every level, and the tests compare them. (In
//! [`gaussian::rounded_normal`] levels may differ in which numbers they leave undecided, never in a number.)
//! The two products use fused multiply-add where there is one and sum over vectors of different widths, so
//! they agree only to rounding.
//!
//! # Why these are written by hand
//!
//! Measured side by side, with two threads, on a 2-core machine with AVX-512:
//!
//! | kernel | measured against | result |
//! |---|---|---|
//! | [`multiply`]: direct convolution | im2col and the `gemm` crate | `gemm`: 0.8 of ours on the paper CNN |
//! | [`multiply`] | plain PyTorch, no privacy | ours, clipping every sample: 1.3 to 2.4 times as fast |
//! | [`multiply`] | ghost norms | ghost norms: half as fast on convolutions |
//! | a whole gradient | burn 0.22; candle | 0.28 to 0.45; 0.07 to 0.17 of plain PyTorch, clipping nothing |
//! | [`gaussian`], exact, ChaCha20 | OpenDP, discrete Gaussian | 92 against 0.2 million numbers/s (AVX2) |
//! | [`chacha`] | the `chacha20` crate | 1.6 (AVX-512), 3.5 (AVX2) against 4.9 ns for 8 bytes |
//! | [`each2`] and its relatives | the `pulp` crate | the same code and bits; one dispatcher instead of two |
//!
//! # Adding an instruction set
//!
//! It takes four additions and nothing else: a variant of [`Level`], its detection in
//! [`Level::is_available`], an arm in [`Level::run`] and the `versions!` macro (not for NEON, which is part
//! of the baseline of its machines), and an implementation of the private trait `Simd` beside those for NEON,
//! AVX2 and AVX-512.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod arrange;
pub mod chacha;
pub mod dots;
mod each;
pub mod elementary;
pub mod elementwise;
pub mod fourier;
pub mod gaussian;
mod level;
pub mod multiply;
pub mod scatter;
mod simd;

pub use each::{each2, each3, each4, each5, squares, write2};
pub use level::{Level, fast};

/// How many extra numbers a buffer must have beyond its end if it is read in whole vectors.
pub const SLACK: usize = 16;
