//! The simulator's parts: a disk that loses power, a clock that only moves when told, random numbers from a seed.
//!
//! Engine and log run on these in one process, so that a failing run is its seed. Compiled for tests and under the
//! feature `sim`; nothing in the product uses it.

pub mod clock;
pub mod disk;
pub mod random;

pub use clock::SimClock;
pub use disk::{Faults, SimDisk};
pub use random::{Random, seeds};
