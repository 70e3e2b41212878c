//! The simulator: a disk that loses power, a clock that only moves when told, random numbers from a seed; and on these
//! the whole engine with clients that vanish, and a checker that reads what happened.
//!
//! Engine and log run in one process, so that a failing run is its seed. Compiled for tests and under the feature `sim`;
//! nothing in the product uses it.
//!
//! [`facts`] and [`history`] are what a run leaves behind, [`checker`] judges it; [`audit`] reads cuts and events as audits do.

pub mod audit;
mod baton;
pub mod checker;
pub mod clock;
pub mod disk;
pub mod facts;
pub mod history;
mod inode;
pub mod random;
pub mod run;
#[cfg(test)]
pub(crate) mod seeds;
pub mod steps;

pub use clock::SimClock;
pub use disk::{Faults, SimDisk};
pub use random::Random;
pub use steps::{Steps, Worker};
