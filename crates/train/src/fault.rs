//! Faults that can be injected into a copy of this crate, so that an audit can show that it finds them.
//!
//! Every place that the guarantee rests on asks `injected` whether it is to go wrong. Without the feature
//! `faults` the answer is the constant `false`, there is nothing that could set it, and the compiler removes
//! the question.
//!
//! # Guarantee
//!
//! [`POSSIBLE`] says which of the two this copy is, and the command asserts at compile time that its copy is
//! the one without faults. Nobody enables the feature on this package: cargo unites the features of all
//! packages that are built together, so a test's wish would reach the command that is built for other tests
//! beside it. The tests of the audit use a package of their own instead, `dpsgd-train-faulty`, with these
//! same sources and the feature always on; nothing but those tests depends on it.

/// Whether faults can be injected into this copy of the crate.
pub const POSSIBLE: bool = cfg!(feature = "faults");

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The noise has half its deviation.
    NoiseHalved,
    /// Every second round adds the noise of the round before it again.
    NoiseReused,
    /// σ stands where the sensitivity 2C belongs: the noise has the deviation σ² instead of 2Cσ.
    SigmaForSensitivity,
    /// Groups enter the sum as they are, and the sum of the m groups is clipped to mC.
    ClippedAfterTheSum,
    /// Groups are clipped to 2C.
    ClipBoundDoubled,
    /// Every epoch uses the permutation of the first.
    PermutationKept,
    /// Every epoch uses the allocation of the first.
    AllocationKept,
    /// The rounds of an epoch are balanced to equal sizes instead of drawn by every sample for itself.
    AllocationBalanced,
    /// A subsample is drawn from the first B·ms samples only: the remainder is always the same.
    RemainderFixed,
    /// An inner algorithm begins a group with the state in which the group before it ended.
    StateLeaks,
    /// The filter keeps every group.
    FilterIgnored,
    /// The ledger writes down one round less than it permits.
    LedgerShort,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Fault; 12] = [
        Fault::NoiseHalved,
        Fault::NoiseReused,
        Fault::SigmaForSensitivity,
        Fault::ClippedAfterTheSum,
        Fault::ClipBoundDoubled,
        Fault::PermutationKept,
        Fault::AllocationKept,
        Fault::AllocationBalanced,
        Fault::RemainderFixed,
        Fault::StateLeaks,
        Fault::FilterIgnored,
        Fault::LedgerShort,
    ];
}

/// Whether this goes wrong, on this thread.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub(crate) const fn injected(_: Fault) -> bool {
    false
}

#[cfg(feature = "faults")]
pub use possible::Injection;
#[cfg(feature = "faults")]
pub(crate) use possible::injected;

#[cfg(feature = "faults")]
mod possible {
    use std::cell::Cell;

    use super::Fault;

    thread_local! {
        static INJECTED: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    /// Whether this goes wrong, on this thread.
    pub(crate) fn injected(fault: Fault) -> bool {
        INJECTED.get() == Some(fault)
    }

    /// Makes one thing go wrong on this thread for as long as it lives.
    #[derive(Debug)]
    pub struct Injection(());

    impl Injection {
        /// Begins the fault; one at a time.
        pub fn of(fault: Fault) -> Self {
            INJECTED.set(Some(fault));
            Self(())
        }
    }

    impl Drop for Injection {
        fn drop(&mut self) {
            INJECTED.set(None);
        }
    }
}
