//! The rules that names and patterns share: elements, their number and their lengths.

use super::error::NameError;

/// The longest name in characters, dots included (EMS-DEST-A08). Names with several elements get less: see
/// [`characters_max`].
pub const NAME_CHARACTERS_MAX: usize = 249;

/// The most elements.
pub const ELEMENTS_MAX: usize = 64;

/// The longest element in characters.
pub const ELEMENT_CHARACTERS_MAX: usize = 127;

/// What a name of [`ELEMENTS_MAX`] elements keeps free.
const RESERVE_AT_MOST_ELEMENTS: usize = NAME_CHARACTERS_MAX - 196;

/// How much of a name an error repeats.
const EXCERPT_CHARACTERS: usize = 64;

/// The longest name with `elements` elements, in characters, dots included.
///
/// The reserve grows evenly with the elements, from one character to the 53 that leave a name of 64 elements 196.
#[must_use]
pub fn characters_max(elements: usize) -> usize {
    NAME_CHARACTERS_MAX - (RESERVE_AT_MOST_ELEMENTS * elements.min(ELEMENTS_MAX)).div_ceil(ELEMENTS_MAX)
}

/// The part of `name` that is worth repeating in an error: a name may be a megabyte long when it is refused.
pub(super) fn excerpt(name: &str) -> String {
    match name.char_indices().nth(EXCERPT_CHARACTERS) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// Checks number and lengths of the elements, and that wildcards stand alone and `>` stands last.
pub(super) fn check(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    let elements = name.bytes().filter(|&byte| byte == b'.').count() + 1;
    if elements > ELEMENTS_MAX {
        return Err(NameError::TooManyElements {
            name: excerpt(name),
            elements,
            limit: ELEMENTS_MAX,
        });
    }
    for (index, element) in name.split('.').enumerate() {
        check_element(name, element, index + 1, elements)?;
    }
    // Bytes are never fewer than characters, so nearly all names need no count.
    let limit = characters_max(elements);
    if name.len() > limit {
        let characters = name.chars().count();
        if characters > limit {
            return Err(NameError::TooLong {
                name: excerpt(name),
                elements,
                characters,
                limit,
            });
        }
    }
    Ok(())
}

fn check_element(name: &str, element: &str, number: usize, elements: usize) -> Result<(), NameError> {
    if element.is_empty() {
        return Err(NameError::EmptyElement {
            name: excerpt(name),
            element: number,
        });
    }
    if element.len() > ELEMENT_CHARACTERS_MAX {
        let characters = element.chars().count();
        if characters > ELEMENT_CHARACTERS_MAX {
            let limit = ELEMENT_CHARACTERS_MAX;
            return Err(NameError::ElementTooLong {
                name: excerpt(name),
                element: number,
                characters,
                limit,
            });
        }
    }
    if let Some(wildcard) = element.chars().find(|&character| matches!(character, '*' | '>')) {
        if element.len() > 1 {
            return Err(NameError::WildcardInElement {
                name: excerpt(name),
                element: number,
                wildcard,
            });
        }
        if wildcard == '>' && number < elements {
            return Err(NameError::TailNotLast {
                name: excerpt(name),
                element: number,
            });
        }
    }
    Ok(())
}
