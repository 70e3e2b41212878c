//! Time that moves when the simulation says so.

/// Wall and monotonic time in milliseconds. The wall clock can be set; the monotonic one only advances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SimClock {
    wall_ms: i64,
    monotonic_ms: u64,
}

impl SimClock {
    /// Starts at a wall time, with the monotonic clock at zero.
    #[must_use]
    pub fn new(wall_ms: i64) -> Self {
        Self {
            wall_ms,
            monotonic_ms: 0,
        }
    }

    /// Milliseconds since the Unix epoch, as this machine believes.
    #[must_use]
    pub fn wall_ms(&self) -> i64 {
        self.wall_ms
    }

    /// Milliseconds since the simulated machine started.
    #[must_use]
    pub fn monotonic_ms(&self) -> u64 {
        self.monotonic_ms
    }

    /// Lets time pass.
    pub fn advance(&mut self, ms: u64) {
        self.monotonic_ms += ms;
        self.wall_ms = self.wall_ms.saturating_add_unsigned(ms);
    }

    /// Sets the wall clock, forwards or back, as an administrator or a time server does.
    pub fn set_wall(&mut self, wall_ms: i64) {
        self.wall_ms = wall_ms;
    }
}
