//! Selectors from outside, as the engine uses them: none of these tests looks behind [`Selector`](super::Selector).

mod limits;
mod reference;
mod table;
