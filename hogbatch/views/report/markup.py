"""Elements of HTML and SVG. Text that is not markup already is escaped."""

from collections.abc import Iterable
from html import escape

from hogbatch.machine.printable import printable


class Markup(str):
    """Text that is HTML or SVG; every other text is escaped before it becomes part of it."""

    __slots__ = ()


def element(name: str, *content: str, **attributes: str | float | None) -> Markup:
    """An element with its content. An underscore in the name of an attribute stands for "-".

    A trailing underscore is removed (`class_`), and an attribute that is None is left out.
    """
    attribute_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
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


def shortened(content: str, most: int) -> str:
    """A text of at most `most` characters, without its middle if it is longer."""
    if len(content) <= most:
        return content
    return f"{content[: most // 2]}…{content[-((most - 1) // 2) :]}"


def coordinate(value: float) -> str:
    """A position in SVG, to a tenth of a unit."""
    rounded = round(value, 1) + 0.0  # without the sign of zero
    return f"{rounded:.1f}".removesuffix(".0")


def _value(value: str | float) -> str:
    """The value of an attribute, which is not shortened: it may be a long path of SVG."""
    if isinstance(value, str):
        return escape(printable(value, max_length=len(value)))
    return coordinate(value)
