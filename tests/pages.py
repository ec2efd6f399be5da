"""What a browser would make of a page: elements, attributes and text; elements have to nest."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "br", "wbr", "link", "img", "input"}


class Page(HTMLParser):
    """A page, read."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()
        self.tags = [tag for tag, _ in self.elements]
        self.attributes = [(tag, name, text or "") for tag, found in self.elements for name, text in found.items()]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes it."""
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes it."""
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """It has to be the last one that was opened."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Notes it."""
        self.text += data
