//! What can be wrong with a name.

use thiserror::Error;

/// Why a text is no name, or no pattern. Elements are counted from 1, as people count them.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    /// Nothing at all.
    #[error("a destination name may not be empty")]
    Empty,
    /// A leading, trailing or double dot.
    #[error("element {element} of '{name}' is empty: dots stand between elements, never first, last or doubled")]
    EmptyElement {
        /// The text as given, cut to a readable length.
        name: String,
        /// Which element.
        element: usize,
    },
    /// An element is too long.
    #[error("element {element} of '{name}' has {characters} characters, at most {limit} are allowed")]
    ElementTooLong {
        /// The text as given, cut to a readable length.
        name: String,
        /// Which element.
        element: usize,
        /// Its length.
        characters: usize,
        /// The longest allowed.
        limit: usize,
    },
    /// Too many elements.
    #[error("'{name}' has {elements} elements, at most {limit} are allowed")]
    TooManyElements {
        /// The text as given, cut to a readable length.
        name: String,
        /// How many there are.
        elements: usize,
        /// The most allowed.
        limit: usize,
    },
    /// Too long as a whole.
    #[error("'{name}' has {characters} characters, a name of {elements} elements may have at most {limit}")]
    TooLong {
        /// The text as given, cut to a readable length.
        name: String,
        /// How many elements there are.
        elements: usize,
        /// The length, dots included.
        characters: usize,
        /// The longest allowed with that many elements.
        limit: usize,
    },
    /// A wildcard where a name of one destination is wanted.
    #[error("element {element} of '{name}' is the wildcard '{wildcard}': the name of one destination is needed here")]
    Wildcard {
        /// The text as given, cut to a readable length.
        name: String,
        /// Which element.
        element: usize,
        /// The wildcard.
        wildcard: char,
    },
    /// `*` or `>` beside other characters.
    #[error("element {element} of '{name}' mixes '{wildcard}' with other characters: a wildcard is a whole element")]
    WildcardInElement {
        /// The text as given, cut to a readable length.
        name: String,
        /// Which element.
        element: usize,
        /// The wildcard.
        wildcard: char,
    },
    /// `>` before the last element.
    #[error("element {element} of '{name}' is '>', which is allowed as the last element only")]
    TailNotLast {
        /// The text as given, cut to a readable length.
        name: String,
        /// Which element.
        element: usize,
    },
    /// A name that belongs to the broker, where users choose one.
    #[error("'{name}' begins with '$': such names belong to the broker")]
    Reserved {
        /// The text as given, cut to a readable length.
        name: String,
    },
    /// A name under `TMP.`, which only carries the settings of temporary destinations.
    #[error("'{name}' is no destination: names under 'TMP' only hold the settings of temporary destinations")]
    TemporarySettings {
        /// The text as given, cut to a readable length.
        name: String,
    },
}
