"""Rules for names: of destinations and patterns, of objects, of subscriptions and client ids.

The engine has the same rules in Rust and applies them to everything that arrives on the wire; this mirror exists so
that a manifest can be judged without an engine (in an editor, in an admission check), and a test compares the two. A
function here returns what is wrong as a sentence, or None.

A destination name is elements separated by dots. In a pattern, an element may be `*` (exactly one element), and the
last one may be `>` (one or more).
"""

import re
import unicodedata

ELEMENTS_MAX = 64
ELEMENT_CHARACTERS_MAX = 127
NAME_CHARACTERS_MAX = 249
# Of client ids as well (EMS-CLI-B22).
SUBSCRIPTION_CHARACTERS_MAX = 255
OBJECT_NAME_CHARACTERS_MAX = 253
# Of names under which something is looked up: as long as a topic's may be, and a little more.
LOOKUP_NAME_CHARACTERS_MAX = 255

# What a name with the most elements keeps free of the 249 characters, so that 196 remain (EMS-DEST-A08).
_RESERVE_AT_MOST_ELEMENTS = NAME_CHARACTERS_MAX - 196

# The entry under this pattern holds the settings of temporary destinations. It is no wildcard like the others
# (EMS-DEST-A39, A40).
TEMPORARY_SETTINGS = "TMP.>"

# The queue for what cannot be delivered: every broker has one.
UNDELIVERED = "$sys.undelivered"
# Under these and the name of a queue or topic one sees what is delayed of it; they are no destinations (EMS-DEST-A63).
DELAYED_QUEUE_PREFIX, DELAYED_TOPIC_PREFIX = "$sys.delayed.q.", "$sys.delayed.t."
_TEMPORARY_SETTINGS_PREFIX = "TMP."

# How a broker calls what it has for itself, and what goes with the connection that made it.
SYSTEM_PREFIX, TEMPORARY_PREFIX = "$sys.", "$TMP$."

# How much of a name an error repeats.
_EXCERPT_CHARACTERS = 64

# An object's name as Kubernetes takes it (a DNS subdomain), so that a manifest that works here works there.
OBJECT_NAME_PATTERN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"


def characters_max(elements: int) -> int:
    """The longest name with so many elements, in characters, dots included (EMS-DEST-A08)."""
    return NAME_CHARACTERS_MAX - -(-_RESERVE_AT_MOST_ELEMENTS * min(elements, ELEMENTS_MAX) // ELEMENTS_MAX)


def length_rule(text: str) -> str:
    """That neither elements nor the whole are too long, as Kubernetes' rules say it of the expression `text`."""
    count = f"size({text}.split('.'))"
    return (
        f"!{text}.matches('[^.]{{{ELEMENT_CHARACTERS_MAX + 1}}}') && {count} <= {ELEMENTS_MAX} && size({text}) <= "
        f"{NAME_CHARACTERS_MAX} - ({_RESERVE_AT_MOST_ELEMENTS} * {count} + {ELEMENTS_MAX - 1}) / {ELEMENTS_MAX}"
    )


def pattern_fault(text: str) -> str | None:
    """What is wrong with a name or a pattern, or None (EMS-DEST-A07, A08, A09)."""
    if not text:
        return "a destination name may not be empty"
    elements = text.split(".")
    if len(elements) > ELEMENTS_MAX:
        return f"'{_excerpt(text)}' has {len(elements)} elements, at most {ELEMENTS_MAX} are allowed"
    for number, element in enumerate(elements, 1):
        if fault := _element_fault(element, last=number == len(elements)):
            return f"element {number} of '{_excerpt(text)}' {fault}"
    limit = characters_max(len(elements))
    if len(text) > limit:
        return (
            f"'{_excerpt(text)}' has {len(text)} characters, "
            f"a name of {len(elements)} elements may have at most {limit}"
        )
    return None


def name_fault(text: str) -> str | None:
    """What is wrong with the name of one destination, wildcards excluded, or None."""
    if fault := pattern_fault(text):
        return fault
    for number, element in enumerate(text.split("."), 1):
        if element in ("*", ">"):
            return (
                f"element {number} of '{_excerpt(text)}' is the wildcard '{element}': "
                "the name of one destination is needed here"
            )
    return None


def reserved_fault(text: str) -> str | None:
    """Why a well-formed name or pattern is not for users to define, or None."""
    if text.startswith("$"):
        return f"'{_excerpt(text)}' begins with '$': such names belong to the broker"
    if text.startswith(_TEMPORARY_SETTINGS_PREFIX) and text != TEMPORARY_SETTINGS:
        return (
            f"'{_excerpt(text)}' is no destination: below 'TMP' there is only '{TEMPORARY_SETTINGS}', "
            "the settings of temporary destinations"
        )
    return None


def object_name_fault(text: str) -> str | None:
    """What is wrong with the name of an object (`metadata.name`), or None."""
    if len(text) > OBJECT_NAME_CHARACTERS_MAX:
        return f"has {len(text)} characters, at most {OBJECT_NAME_CHARACTERS_MAX} are allowed"
    if not re.fullmatch(OBJECT_NAME_PATTERN, text):
        return (
            f"'{_excerpt(text)}' is no object name: lower-case letters, digits, '-' and '.', beginning and ending with "
            "a letter or digit (the destination's own name, if it is another, goes into spec.name)"
        )
    return None


def label_fault(text: str) -> str | None:
    """What is wrong with the name of a durable subscription or a client id, or None."""
    if not text:
        return "may not be empty"
    if len(text) > SUBSCRIPTION_CHARACTERS_MAX:
        return f"has {len(text)} characters, at most {SUBSCRIPTION_CHARACTERS_MAX} are allowed"
    return None


def client_id_fault(text: str) -> str | None:
    """What is wrong with the client id that a connection is to have, or None."""
    if any(unicodedata.category(character) == "Cc" for character in text):
        return "may not hold control characters: a broker takes no such client id"
    return label_fault(text)


def lookup_fault(text: str) -> str | None:
    """What is wrong with a name under which something is to be looked up, or None."""
    if not text:
        return "may not be empty"
    if len(text) > LOOKUP_NAME_CHARACTERS_MAX:
        return f"has {len(text)} characters, at most {LOOKUP_NAME_CHARACTERS_MAX} are allowed"
    if text.startswith("$"):
        return f"'{_excerpt(text)}' begins with '$': such names belong to the broker"
    if any(character in "*> " or not character.isprintable() for character in text):
        return f"'{_excerpt(text)}' may not hold blanks, control characters, * or >"
    if "://" in text:
        return f"'{_excerpt(text)}' may not hold ://, which stands in names with an address before them"
    return None


def is_pattern(text: str) -> bool:
    """Whether a well-formed pattern stands for more than one name."""
    return any(element in ("*", ">") for element in text.split("."))


def _element_fault(element: str, *, last: bool) -> str | None:
    if not element:
        return "is empty: dots stand between elements, never first, last or doubled"
    if len(element) > ELEMENT_CHARACTERS_MAX:
        return f"has {len(element)} characters, at most {ELEMENT_CHARACTERS_MAX} are allowed"
    wildcard = next((character for character in element if character in "*>"), None)
    if wildcard and len(element) > 1:
        return f"mixes '{wildcard}' with other characters: a wildcard is a whole element"
    if wildcard == ">" and not last:
        return "is '>', which is allowed as the last element only"
    return None


def _excerpt(text: str) -> str:
    return text if len(text) <= _EXCERPT_CHARACTERS else text[:_EXCERPT_CHARACTERS] + "…"
