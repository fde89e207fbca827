"""Elements of HTML. Text that is not markup already is escaped."""

from collections.abc import Iterable
from html import escape

from hogbatch.machine.printable import printable


class Markup(str):
    """Text that is HTML; every other text is escaped before it becomes part of it."""

    __slots__ = ()


def element(name: str, *content: str, **attributes: str | None) -> Markup:
    """An element with its content; an attribute that is None is left out.

    In the name of an attribute, "_" stands for "-", and is removed from the end (`class_`).
    """
    attribute_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{attribute_text}>{joined(content)}</{name}>")


def joined(content: Iterable[str]) -> Markup:
    """Several pieces as one; those that are not markup are escaped."""
    return Markup("".join(each if isinstance(each, Markup) else text(each) for each in content))


def text(content: str) -> Markup:
    """Text in which nothing is interpreted; what is not printable is shown as codes."""
    return Markup(escape(printable(content)))
