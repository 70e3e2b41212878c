//! What runs an engine's jobs: threads. In builds with the feature `sim`, which no wheel of ours has, steps as well.

#[cfg(feature = "sim")]
pub(super) use super::simulated::Executing;
#[cfg(not(feature = "sim"))]
pub(super) use crate::host::Threads as Executing;
