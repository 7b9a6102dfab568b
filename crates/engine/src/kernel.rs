//! The arithmetic that takes the time, for the instruction set of the machine it runs on.
//!
//! This module, and no other, contains `unsafe` code: vector instructions and unchecked indexing.
//! Every function here is safe to call; it checks the extent of its slices once and then runs
//! without checks. The instruction set is an argument, so that the tests can run all of them.
#![allow(unsafe_code)]

pub mod elementwise;
pub mod gaussian;
pub mod multiply;
pub mod scatter;
mod simd;

/// The instruction sets there is code for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Level {
    /// Plain Rust, as the compiler makes it for any machine.
    Portable,
    /// AVX2 with fused multiply-add: eight numbers at a time.
    Avx2,
    /// AVX-512 (F): sixteen numbers at a time.
    Avx512,
}

impl Level {
    /// All that this machine can run, the slowest first.
    pub fn available() -> Vec<Level> {
        [Level::Portable, Level::Avx2, Level::Avx512]
            .into_iter()
            .filter(|level| level.is_available())
            .collect()
    }

    /// Whether this machine has the instructions; they are looked up once and remembered.
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = || std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma");
            match self {
                Level::Portable => true,
                Level::Avx2 => avx2(),
                Level::Avx512 => avx2() && std::is_x86_feature_detected!("avx512f"),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Level::Portable
        }
    }

    /// The fastest that this machine can run.
    pub fn best() -> Level {
        Level::available().last().copied().unwrap_or(Level::Portable)
    }

    /// The numbers in one vector.
    pub fn lanes(self) -> usize {
        match self {
            Level::Portable => 4,
            Level::Avx2 => 8,
            Level::Avx512 => 16,
        }
    }

    /// The columns of a packed panel of weights: two vectors.
    pub fn panel(self) -> usize {
        2 * self.lanes()
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        }
    }

    /// Stops a level that this machine does not have before an instruction of it is executed.
    ///
    /// `Level::available` is where levels come from, but the variants are public.
    #[inline]
    fn check(self) -> Level {
        assert!(self.is_available(), "{} is not available", self.name());
        self
    }
}

/// How many numbers beyond its end a buffer must have that is read in whole vectors.
pub const SLACK: usize = 16;

/// Compiles a loop three times, and runs the copy for the given level.
///
/// The body is safe code that the compiler vectorises; only the call of a copy compiled with more
/// instructions than the baseline is unsafe, and sound because the level was detected.
macro_rules! versions {
    ($($(#[$meta:meta])* pub fn $name:ident($level:ident: Level $(, $arg:ident: $ty:ty)* $(,)?) $(-> $ret:ty)? $body:block)*) => {$(
        $(#[$meta])*
        pub fn $name($level: $crate::kernel::Level $(, $arg: $ty)*) $(-> $ret)? {
            #[inline(always)]
            fn body($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $ty),*) $(-> $ret)? {
                    body($($arg),*)
                }
                #[target_feature(enable = "avx512f,avx2,fma")]
                fn avx512($($arg: $ty),*) $(-> $ret)? {
                    body($($arg),*)
                }
                match $level.check() {
                    // SAFETY: `check` has seen that the machine has these instructions.
                    $crate::kernel::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    // SAFETY: as above.
                    $crate::kernel::Level::Avx512 => return unsafe { avx512($($arg),*) },
                    $crate::kernel::Level::Portable => {}
                }
            }
            body($($arg),*)
        }
    )*};
}
use versions;
