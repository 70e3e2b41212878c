//! Which defect is there again. Comes with the patches beside it: what is shipped has none of it.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The one that the variable DEFECT names.
static CHOSEN: LazyLock<AtomicU32> = LazyLock::new(|| {
    let text = std::env::var("DEFECT").unwrap_or_default();
    AtomicU32::new(text.parse().unwrap_or(0))
});

/// Whether the defect of this number is there.
pub fn on(number: u32) -> bool {
    CHOSEN.load(Ordering::Relaxed) == number
}

/// Does something without any defect.
pub fn without<T>(does: impl FnOnce() -> T) -> T {
    let number = CHOSEN.swap(0, Ordering::Relaxed);
    let done = does();
    CHOSEN.store(number, Ordering::Relaxed);
    done
}
