"""Source of Rust in which every mutant stands behind a number, so that one build has them all.

cargo-mutants lists what could be changed, with spans; the syntax tree says what belongs to an operator, an arm or a
field. Each change becomes a branch that is taken when the process runs with its number, and else the code as it was:
`(if switches::on(7) { a < b } else { a <= b })`. Inside such a branch nothing else is changed, since a process has one
mutant. Comments around each branch say where it begins and ends, so that an error of the compiler leads back to it.

Constants cannot ask at run time: their mutants are left out. A `const fn` can where no constant calls it, so it is made
a plain one but for those that `constant` names.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import tree_sitter_rust
from tree_sitter import Language, Node, Parser

ON = "crate::switches::on"
CONSTANT = {"const_item", "static_item", "const_block", "array_type", "enum_variant"}
REGION = re.compile(rb"/\*<([\d,]+)\*/|/\*>\*/")

#: What stands beside the sources: whether a mutant is there, and which ones a test comes by.
SWITCHES = r"""//! Which mutant is there: the one that MUTANT names. What is asked for is written to the file REACHED.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex};

const UNKNOWN: u32 = u32::MAX;
const RECORDING: u32 = u32::MAX - 1;
static CHOSEN: AtomicU32 = AtomicU32::new(UNKNOWN);
static SEEN: [AtomicU32; 1 << 16] = [const { AtomicU32::new(0) }; 1 << 16];
static REACHED: LazyLock<Mutex<File>> = LazyLock::new(|| {
    let name = std::env::var("REACHED").unwrap();
    Mutex::new(OpenOptions::new().append(true).create(true).open(name).unwrap())
});

/// Whether the mutant of this number is there.
#[inline]
pub fn on(number: u32) -> bool {
    let chosen = CHOSEN.load(Relaxed);
    if chosen < RECORDING { chosen == number } else { first(number, chosen) }
}

#[cold]
fn first(number: u32, chosen: u32) -> bool {
    if chosen == UNKNOWN {
        let named = std::env::var("MUTANT").ok().and_then(|text| text.parse().ok());
        let kind = if std::env::var_os("REACHED").is_some() { RECORDING } else { 0 };
        CHOSEN.store(named.unwrap_or(kind), Relaxed);
        return on(number);
    }
    if SEEN[number as usize].swap(1, Relaxed) == 0 {
        REACHED.lock().unwrap().write_all(format!("{number}\n").as_bytes()).unwrap();
    }
    false
}
"""


@dataclass(frozen=True)
class Mutant:
    """A change as cargo-mutants lists it. Lines and columns begin with 1; columns count characters."""

    number: int
    name: str
    file: str
    genre: str
    replacement: str
    at: tuple[int, int]

    @classmethod
    def listed(cls, number: int, row: dict[str, object]) -> "Mutant":
        """From a row of `cargo mutants --list --json`. A function is known by its end: it may begin with a comment."""
        held, edge = (row["function"], "end") if row["genre"] == "FnValue" else (row, "start")
        assert isinstance(held, dict)
        place = held["span"][edge]
        name, file, genre, replacement = (str(row[key]) for key in ("name", "file", "genre", "replacement"))
        return cls(number, name, file, genre, replacement, (place["line"], place["column"]))


@dataclass
class Rewriting:
    """One file with its mutants; `placed` are those that got their branch."""

    text: bytes
    places: dict[tuple[str, int], list[Mutant]]
    constant: frozenset[str] = frozenset()
    placed: set[int] = field(default_factory=set)

    def source(self, node: Node) -> str:
        """As it was written."""
        return self.text[node.start_byte : node.end_byte].decode()

    def take(self, genre: str, at: int) -> list[Mutant]:
        """The mutants of this kind that are at this byte."""
        found = self.places.get((genre, at), [])
        self.placed.update(one.number for one in found)
        return found

    def joined(self, node: Node, other: dict[int, str]) -> str:
        """The node's text, with switches in its parts, or with what `other` has for a part."""
        parts, at = [], node.start_byte
        for child in node.children:
            parts.append(self.text[at : child.start_byte].decode())
            parts.append(other[child.id] if child.id in other else self.render(child))
            at = child.end_byte
        return "".join([*parts, self.text[at : node.end_byte].decode()])

    def render(self, node: Node) -> str:
        """The node's text with switches in it."""
        if node.type in CONSTANT or not node.children:
            return self.source(node)
        if node.type == "function_item":
            return self.function(node)
        if node.type == "match_expression":
            return self.match(node)
        if node.type == "match_arm":
            return self.arm(node)
        changes: list[tuple[Mutant, str]] = []
        if node.type in {"binary_expression", "compound_assignment_expr"}:
            operator = node.child_by_field_name("operator") or node.children[1]
            changes = [
                (one, self.changed(node, operator, one)) for one in self.take("BinaryOperator", operator.start_byte)
            ]
        elif node.type == "unary_expression":
            changes = [
                (one, self.changed(node, node.children[0], one)) for one in self.take("UnaryOperator", node.start_byte)
            ]
        elif node.type == "struct_expression":
            changes = self.fields(node)
        return chosen(changes, self.joined(node, {}))

    def changed(self, node: Node, part: Node, mutant: Mutant) -> str:
        """The node as it was but for one part."""
        before, after = self.text[node.start_byte : part.start_byte], self.text[part.end_byte : node.end_byte]
        return f"{before.decode()} {mutant.replacement} {after.decode()}"

    def function(self, node: Node) -> str:
        """A function that returns something else at once."""
        body, name = node.child_by_field_name("body"), node.child_by_field_name("name")
        modifiers = [child for child in node.children if child.type == "function_modifiers"]
        if any("const" in self.source(child) for child in modifiers) and name and self.source(name) in self.constant:
            return self.source(node)
        other = {child.id: self.source(child).replace("const", "") for child in modifiers}
        result = node.child_by_field_name("return_type")
        if body is not None:
            # What only promises a trait has one type, which another value has not.
            found = [] if result and "impl " in self.source(result) else self.take("FnValue", node.end_byte)
            returns = "".join(branch(one, f"return {one.replacement};") for one in found)
            other[body.id] = "{" + returns + self.joined(body, {})[1:]
        return self.joined(node, other)

    def match(self, node: Node) -> str:
        """A match. That arms are missing is said of its value, so the arms that may be passed over are noted there."""
        value, body = node.child_by_field_name("value"), node.child_by_field_name("body")
        assert value is not None
        assert body is not None
        arms = [one for child in body.children for one in self.places.get(("MatchArm", child.start_byte), [])]
        numbers = ",".join(str(one.number) for one in arms)
        noted = {value.id: f"/*<{numbers}*/{self.render(value)}/*>*/"} if arms else {}
        return self.joined(node, noted)

    def arm(self, node: Node) -> str:
        """An arm of a match that is passed over, or whose condition is not asked."""
        pattern = node.child_by_field_name("pattern")
        if pattern is None:
            return self.joined(node, {})
        guard = pattern.child_by_field_name("condition")
        if guard is not None and guard.type in {"let_condition", "let_chain"}:
            return self.joined(node, {})
        deleted = self.take("MatchArm", pattern.start_byte)
        asked = [] if guard is None else self.take("MatchArmGuard", guard.start_byte)
        wanted = "true" if guard is None else f"({self.render(guard)})"
        for one in (*asked, *deleted):
            on = f"/*<{one.number}*/{ON}({one.number})/*>*/"
            wanted = f"({on} || {wanted})" if one.replacement == "true" else f"(!{on} && {wanted})"
        if guard is not None:
            return self.joined(node, {pattern.id: self.joined(pattern, {guard.id: wanted})})
        return self.joined(node, {pattern.id: f"{self.source(pattern)} if {wanted}"} if deleted else {})

    def fields(self, node: Node) -> list[tuple[Mutant, str]]:
        """A struct without one of its fields, which the last line then gives."""
        body = node.child_by_field_name("body")
        assert body is not None
        found = []
        for child in body.children:
            after = "" if child.next_sibling is None else self.source(child.next_sibling)
            end = child.end_byte if after != "," or child.next_sibling is None else child.next_sibling.end_byte
            for one in self.take("StructField", child.start_byte):
                before, rest = self.text[node.start_byte : child.start_byte], self.text[end : node.end_byte]
                found.append((one, before.decode() + rest.decode()))
        return found


def branch(mutant: Mutant, does: str) -> str:
    """What is done when this mutant is there."""
    return f"/*<{mutant.number}*/if {ON}({mutant.number}) {{ {does} }}/*>*/"


def chosen(changes: list[tuple[Mutant, str]], otherwise: str) -> str:
    """An expression that is one of its changes, or as it was."""
    if not changes:
        return otherwise
    numbers = ",".join(str(one.number) for one, _ in changes)
    branches = " else ".join(branch(one, f"({text})") for one, text in changes)
    return f"/*<{numbers}*/({branches} else {{ ({otherwise}) }})/*>*/"


def rewritten(text: bytes, mutants: Iterable[Mutant], constant: frozenset[str]) -> tuple[bytes, set[int]]:
    """A file's source with these mutants in it, and the numbers of those for which there was a place."""
    lines = text.decode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    places = defaultdict(list)
    for one in mutants:
        row, column = one.at
        at = starts[row - 1] + len(lines[row - 1][: column - 1].encode())
        places[one.genre, at].append(one)
    rewriting = Rewriting(text, places, constant)
    tree = Parser(Language(tree_sitter_rust.language())).parse(text)
    return rewriting.render(tree.root_node).encode(), rewriting.placed


def at_fault(text: bytes, start: int) -> set[int]:
    """Which mutants an error at this byte of a rewritten file concerns: those of the innermost branch around it."""
    around: list[set[int]] = []
    for mark in REGION.finditer(text[:start]):
        if mark[1]:
            around.append({int(number) for number in mark[1].split(b",")})
        else:
            around.pop()
    return around[-1] if around else set()
