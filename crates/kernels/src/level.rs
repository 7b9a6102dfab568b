//! The instruction sets, their detection, and the dispatcher that every kernel goes through.

use std::sync::LazyLock;

/// The supported instruction sets, slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Level {
    /// Plain Rust, compiled for the baseline of the target.
    Portable,
    /// ARM NEON: eight numbers at a time, in two registers.
    Neon,
    /// AVX2 with fused multiply-add: eight numbers at a time.
    Avx2,
    /// AVX-512 (F): sixteen numbers at a time.
    Avx512,
}

static BEST: LazyLock<Level> =
    LazyLock::new(|| Level::ALL.into_iter().rfind(|level| level.is_available()).unwrap_or(Level::Portable));

impl Level {
    /// Slowest first.
    const ALL: [Level; 4] = [Level::Portable, Level::Neon, Level::Avx2, Level::Avx512];

    /// All levels this machine can run, slowest first.
    pub fn available() -> Vec<Level> {
        Level::ALL.into_iter().filter(|level| level.is_available()).collect()
    }

    /// Whether this machine can run the level. The answer is cached: a call costs a few loads.
    #[inline]
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = || std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma");
            match self {
                Level::Portable => true,
                Level::Neon => false,
                Level::Avx2 => avx2(),
                Level::Avx512 => avx2() && std::is_x86_feature_detected!("avx512f"),
            }
        }
        // NEON is part of the baseline there, and with it every loop of plain Rust.
        #[cfg(target_arch = "aarch64")]
        {
            matches!(self, Level::Portable | Level::Neon)
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        {
            self == Level::Portable
        }
    }

    /// The fastest level this machine can run, determined once per process.
    #[inline]
    pub fn best() -> Level {
        *BEST
    }

    /// The numbers in one vector.
    #[inline]
    pub fn lanes(self) -> usize {
        match self {
            Level::Portable => 4,
            Level::Neon | Level::Avx2 => 8,
            Level::Avx512 => 16,
        }
    }

    /// The columns of a packed panel of weights: two vectors.
    #[inline]
    pub fn panel(self) -> usize {
        2 * self.lanes()
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Neon => "neon",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        }
    }

    /// Runs a closure inside a function compiled for this level, so that its loops are vectorised for it.
    ///
    /// The closure must be marked `#[inline(always)]`: code that is not inlined keeps the instructions of the
    /// baseline. Its results do not depend on the level.
    ///
    /// # Panics
    /// If this machine cannot run the level.
    #[inline]
    pub fn run<R>(self, operation: impl FnOnce() -> R) -> R {
        let _level = self.check();
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx2,fma")]
            fn avx2<R>(operation: impl FnOnce() -> R) -> R {
                operation()
            }
            #[target_feature(enable = "avx512f,avx2,fma")]
            fn avx512<R>(operation: impl FnOnce() -> R) -> R {
                operation()
            }
            match _level {
                // SAFETY: `check` has made sure that the machine has these instructions.
                Level::Avx2 => return unsafe { avx2(operation) },
                // SAFETY: as above.
                Level::Avx512 => return unsafe { avx512(operation) },
                Level::Portable | Level::Neon => {}
            }
        }
        operation()
    }

    /// Panics if this machine lacks the level, before one of its instructions is executed.
    ///
    /// Levels come from [`Level::available`] or [`Level::best`], but the variants are public.
    #[inline]
    pub(crate) fn check(self) -> Level {
        assert!(self.is_available(), "{} is not available", self.name());
        self
    }
}

/// Runs a closure at the best level of this machine. See [`Level::run`]: the closure must be marked
/// `#[inline(always)]`.
///
/// ```
/// let mut x = vec![1.0f32; 100];
/// dpsgd_kernels::fast(
///     #[inline(always)]
///     || x.iter_mut().for_each(|x| *x = x.sqrt() + 1.0),
/// );
/// assert!(x.iter().all(|x| *x == 2.0));
/// ```
#[inline]
pub fn fast<R>(operation: impl FnOnce() -> R) -> R {
    Level::best().run(operation)
}

/// Turns a loop in safe Rust into a kernel: compiled once per level, dispatched like [`Level::run`].
///
/// Each copy takes the arguments themselves, not a closure: they travel in registers, and the compiler knows
/// that slices do not overlap. On the short rows of LeNet-5 that is worth a few percent of a gradient.
macro_rules! versions {
    ($(
        $(#[$meta:meta])*
        pub fn $name:ident($level:ident: Level $(, $arg:ident: $ty:ty)* $(,)?) $(-> $ret:ty)? $body:block
    )*) => {$(
        $(#[$meta])*
        #[inline]
        pub fn $name($level: $crate::Level $(, $arg: $ty)*) $(-> $ret)? {
            #[inline(always)]
            fn body($($arg: $ty),*) $(-> $ret)? $body
            let _level = $level.check();
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
                match _level {
                    // SAFETY: `check` has made sure that the machine has these instructions.
                    $crate::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    // SAFETY: as above.
                    $crate::Level::Avx512 => return unsafe { avx512($($arg),*) },
                    $crate::Level::Portable | $crate::Level::Neon => {}
                }
            }
            body($($arg),*)
        }
    )*};
}
pub(crate) use versions;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_level_is_the_last_available_one() {
        assert_eq!(Some(&Level::best()), Level::available().last());
        assert!(Level::best().is_available());
    }

    #[test]
    fn a_closure_runs_once_at_every_level_and_returns_its_result() {
        for level in Level::available() {
            let mut runs = 0;
            let result = level.run(
                #[inline(always)]
                || {
                    runs += 1;
                    41 + runs
                },
            );
            assert_eq!((result, runs), (42, 1), "{}", level.name());
        }
    }
}
