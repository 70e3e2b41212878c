"""A reader of a page: what is to be seen at a place, and by how many clicks one gets to a text."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = frozenset({"meta", "br", "img", "link", "hr", "input"})


@dataclass(eq=False)
class Element:
    """An element, with its texts and elements in their order."""

    name: str
    attributes: dict[str, str]
    parent: "Element | None" = None
    content: "list[Element | str]" = field(default_factory=list)

    @property
    def elements(self) -> "list[Element]":
        """All below it."""
        below = [one for one in self.content if isinstance(one, Element)]
        return [found for one in below for found in (one, *one.elements)]

    @property
    def text(self) -> str:
        """All text below it, hidden or not."""
        return "".join(one if isinstance(one, str) else one.text for one in self.content)

    def seen(self, opened: "frozenset[Element]") -> "tuple[str, list[Element]]":
        """What a reader sees of it: the text, and what can be clicked. Of a closed `details` that is its summary."""
        texts: list[str] = []
        clickable: list[Element] = []
        for one in self.content:
            if isinstance(one, str):
                texts.append(one)
                continue
            is_closed = self.name == "details" and "open" not in self.attributes and self not in opened
            if is_closed and one.name != "summary":
                continue
            if one.name == "summary" or (one.name == "a" and one.attributes.get("href", "").startswith("#")):
                clickable.append(one)
            text, more = one.seen(opened)
            texts.append(text)
            clickable += more
        return "".join(texts), clickable


class Page(HTMLParser):
    """A page that was read; an element that is not closed, or closed twice, is an error."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.root = self._here = Element("#page", {})
        self.feed(html)
        self.close()
        assert self._here is self.root, f"{self._here.name} is not closed"
        self.ids: dict[str, Element] = {}
        for one in self.root.elements:
            if "id" in one.attributes:
                assert one.attributes["id"] not in self.ids, one.attributes["id"]
                self.ids[one.attributes["id"]] = one

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        one = Element(tag, {name: value or "" for name, value in attrs}, self._here)
        self._here.content.append(one)
        if tag not in _VOID:
            self._here = one

    def handle_endtag(self, tag: str) -> None:
        assert self._here.name == tag, f"</{tag}> within {self._here.name}"
        assert self._here.parent is not None
        self._here = self._here.parent

    def handle_data(self, data: str) -> None:
        self._here.content.append(data)

    def clicks(self, start: str, wanted: str, most: int) -> int | None:
        """How many clicks it takes at least to see a text, from an element on; None: more than `most`."""
        begin: frozenset[Element] = frozenset()
        places = [(self.ids[start], begin)]
        for count in range(most + 1):
            following: list[tuple[Element, frozenset[Element]]] = []
            for place, opened in places:
                text, clickable = place.seen(opened)
                if wanted in text:
                    return count
                following += [self._clicked(place, opened, one) for one in clickable]
            places = following
        return None

    def _clicked(self, place: Element, opened: frozenset[Element], one: Element) -> tuple[Element, frozenset[Element]]:
        if one.name == "summary":
            assert one.parent is not None
            return place, opened | {one.parent}
        target = self.ids[one.attributes["href"].removeprefix("#")]
        # Following a link opens what its target is within.
        around = set()
        above: Element | None = target
        while above is not None:
            around.add(above)
            above = above.parent
        return target, opened | around
