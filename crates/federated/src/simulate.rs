//! A whole federation in one process, on a virtual clock.
//!
//! The core is the one that runs between sites: the same coordinator, server, client and trainer. Only the
//! transport is memory, and time, speeds, delays and faults come from a seed, so that a run can be repeated.
//! A round is computed when its result is needed, which is a matter of this machine; when it begins and ends
//! is a matter of the virtual clock.

mod chance;
mod conditions;
mod outcome;
mod seat;
mod world;

pub use self::conditions::{Conditions, Delay, NotADelay};
pub use self::outcome::{ClientOutcome, Finished, Moment, Record};
pub use self::seat::Site;
pub use self::world::{SimulationError, World};
