//! Two jobs at once, one disk operation at a time, in an order that a seed draws.
//!
//! Each job has a thread, and only the one that has the baton runs. Before each operation of the disk it may have to pass
//! the baton on. So every interleaving of the operations can come up, and a seed repeats it.

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::random::Random;

struct Order {
    random: Random,
    /// Whose turn it is.
    turn: usize,
    ended: [bool; 2],
}

struct Baton {
    order: Mutex<Order>,
    changed: Condvar,
}

thread_local! {
    static RUNNER: RefCell<Option<(Arc<Baton>, usize)>> = const { RefCell::new(None) };
}

impl Baton {
    fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, order: MutexGuard<'_, Order>, runner: usize) {
        let waited = self.changed.wait_while(order, |order| order.turn != runner);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn pass(&self, runner: usize) {
        let mut order = self.order();
        let other = 1 - runner;
        if !order.ended[other] && order.random.one_in(2) {
            order.turn = other;
            self.changed.notify_all();
            self.wait(order, runner);
        }
    }
}

/// Ends a runner's part, also when its job panics: the other one would wait for ever.
struct Part(Arc<Baton>, usize);

impl Drop for Part {
    fn drop(&mut self) {
        RUNNER.with_borrow_mut(|known| *known = None);
        let mut order = self.0.order();
        order.ended[self.1] = true;
        order.turn = 1 - self.1;
        self.0.changed.notify_all();
    }
}

/// Called before each operation of a disk: the other job's may come first.
pub(super) fn pass() {
    let runner = RUNNER.with_borrow(Clone::clone);
    if let Some((baton, runner)) = runner {
        baton.pass(runner);
    }
}

/// Runs both.
pub(super) fn interleave<A: Send, B: Send>(
    mut random: Random,
    first: impl FnOnce() -> A + Send,
    second: impl FnOnce() -> B + Send,
) -> (A, B) {
    let turn = random.below(2) as usize;
    let baton = Arc::new(Baton {
        order: Mutex::new(Order {
            random,
            turn,
            ended: [false; 2],
        }),
        changed: Condvar::new(),
    });
    let begin = |runner: usize| {
        RUNNER.with_borrow_mut(|known| *known = Some((baton.clone(), runner)));
        baton.wait(baton.order(), runner);
        Part(baton.clone(), runner)
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let _part = begin(1);
            second()
        });
        let first = {
            let _part = begin(0);
            first()
        };
        match other.join() {
            Ok(second) => (first, second),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_order_of_two_jobs_comes_up_and_a_seed_repeats_it() {
        let run = |seed: u64| {
            let steps = Mutex::new(String::new());
            let job = |name: char| {
                let steps = &steps;
                move || {
                    for _ in 0..2 {
                        pass();
                        steps.lock().unwrap().push(name);
                    }
                }
            };
            interleave(Random::new(seed), job('a'), job('b'));
            steps.into_inner().unwrap()
        };
        let orders: BTreeSet<String> = (0..200).map(run).collect();
        assert_eq!(
            orders.into_iter().collect::<Vec<_>>(),
            ["aabb", "abab", "abba", "baab", "baba", "bbaa"]
        );
        assert!((0..20).all(|seed| run(seed) == run(seed)));
    }
}
