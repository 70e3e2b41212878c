//! Views of an encoded `sterna.v1.Message`: header fields, properties and body, read where they lie.
//!
//! The broker stores and delivers exactly the bytes a producer sent, so it never decodes a message into a struct. A
//! [`MessageView`] is made once for every message that comes in; it finds the header fields and remembers where
//! properties and body are. Properties are read by name when a selector asks. What the broker knows about a message (its
//! id, when it arrived) is not in here: see [`Selectable`], which joins both for selectors.
//!
//! Parsing checks what the broker itself relies on. [`MessageView::check_properties`] and [`MessageView::check_body`]
//! check the rest, for whoever wants to refuse a message that its receivers could not read.

mod body;
mod error;
mod property;
mod selectable;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;
mod view;

pub use body::{Body, BodyKind, NESTING_MAX};
pub use error::MessageError;
pub use property::{Properties, PropertyValue};
pub use selectable::Selectable;
pub use view::{CORRELATION_ID_BYTES_MAX, DEFAULT_PRIORITY, MessageView, PRIORITY_MAX};
