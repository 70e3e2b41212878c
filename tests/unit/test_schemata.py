"""Every kind of change gets its branch, where the code stays as it was without it."""

import re

import pytest

from tools.mutants import Measured, batches
from tools.schemata import Mutant, at_fault, rewritten

SOURCE = """
const LIMIT: u64 = 3 * 4;

impl Log {
    /// The words before a function are part of it.
    pub const fn room(&self) -> u64 {
        self.left
    }

    fn next(&mut self) -> Option<u64> {
        if self.used + 1 <= LIMIT && !self.full {
            self.used += 1; // gr\u00fcn
        }
        match self.kind {
            Kind::Full => None,
            Kind::Open(n) if n > 7 => Some(n),
            _ => Header { id, ..self.header }.find(),
        }
    }
}
"""


def mutant(genre: str, after: str, replacement: str = "", number: int = 1) -> Mutant:
    """A change at the end of these words of the source."""
    before = SOURCE[: SOURCE.index(after) + len(after)]
    at = before.count("\n") + 1, len(before) - before.rfind("\n")
    return Mutant(number, "a name", "src/a.rs", genre, replacement, at)


def plain(text: bytes) -> str:
    """Without the marks, and with short questions."""
    unmarked = re.sub(rb"/\*[<>][\d,]*\*/", b"", text).decode()
    return re.sub(r"crate::switches::on\((\d+)\)", r"on\1", unmarked)


@pytest.mark.parametrize(
    ("one", "wanted"),
    [
        (
            mutant("BinaryOperator", "self.used + 1 ", ">"),
            "(if on1 { (self.used + 1  >  LIMIT) } else { (self.used + 1 <= LIMIT) }) &&",
        ),
        (
            mutant("BinaryOperator", "self.used + 1 <= LIMIT ", "||"),
            "if (if on1 { (self.used + 1 <= LIMIT  ||  !self.full) } else {",
        ),
        (
            mutant("BinaryOperator", "            self.used ", "-="),
            "(if on1 { (self.used  -=  1) } else { (self.used += 1) }); // gr\u00fcn",
        ),
        (mutant("UnaryOperator", "LIMIT && "), "&& (if on1 { (  self.full) } else { (!self.full) }) {"),
        (mutant("FnValue", "        self.left\n    }", "0"), "pub  fn room(&self) -> u64 {if on1 { return 0; }\n"),
        (mutant("MatchArm", "match self.kind {\n            "), "Kind::Full if (!on1 && true) => None"),
        (mutant("MatchArm", "Kind::Full => None,\n            "), "Kind::Open(n) if (!on1 && (n > 7)) => Some(n)"),
        (mutant("MatchArmGuard", "Kind::Open(n) if ", "true"), "Kind::Open(n) if (on1 || (n > 7)) => Some(n)"),
        (mutant("MatchArmGuard", "Kind::Open(n) if ", "false"), "Kind::Open(n) if (!on1 && (n > 7)) => Some(n)"),
        (
            mutant("StructField", "Header { "),
            "(if on1 { (Header {  ..self.header }) } else { (Header { id, ..self.header }) }).find()",
        ),
    ],
)
def test_a_change_stands_behind_its_number(one: Mutant, wanted: str) -> None:
    text, placed = rewritten(SOURCE.encode(), [one], frozenset())
    assert placed == {1}
    assert wanted in plain(text)


def test_a_branch_holds_no_other_change() -> None:
    both = [mutant("BinaryOperator", "self.used ", "-"), mutant("BinaryOperator", "self.used + 1 ", "<", 2)]
    text, placed = rewritten(SOURCE.encode(), both, frozenset())
    assert placed == {1, 2}
    inner = "(if on1 { (self.used  -  1) } else { (self.used + 1) })"
    assert f"(if on2 {{ (self.used + 1  <  LIMIT) }} else {{ ({inner} <= LIMIT) }})" in plain(text)


def test_what_is_constant_stays_as_it_was() -> None:
    found = [mutant("BinaryOperator", "u64 = 3 ", "/"), mutant("FnValue", "        self.left\n    }", "0", 2)]
    text, placed = rewritten(SOURCE.encode(), found, frozenset({"room"}))
    assert placed == set()
    assert "pub const fn room" in text.decode()
    assert "3 * 4" in text.decode()


def test_an_error_leads_to_the_branch_around_it() -> None:
    both = [mutant("BinaryOperator", "self.used ", "-", 7), mutant("BinaryOperator", "self.used ", "*", 8)]
    text, _ = rewritten(SOURCE.encode(), both, frozenset())
    assert at_fault(text, text.index(b"*  1")) == {8}
    assert at_fault(text, text.index(b"used + 1")) == {7, 8}
    assert at_fault(text, text.index(b"<= LIMIT")) == set()


def test_quick_tests_are_run_together_first() -> None:
    tests = [Measured(str(seconds), seconds, frozenset()) for seconds in (0.01, 0.02, 0.1, 0.2, 1.0, 4.0, 9.0)]
    assert [[one.seconds for one in batch] for batch in batches(tests)] == [[0.01, 0.02], [0.1, 0.2], [1.0], [4.0, 9.0]]
