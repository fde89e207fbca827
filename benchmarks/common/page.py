"""Generated parts of Markdown pages, between two comments."""

from pathlib import Path

from benchmarks.common import report
from hogbatch.errors import UsageError


def insert(path: Path, name: str, text: str) -> None:
    """Replace what is between <!-- NAME --> and <!-- /NAME --> in a page by `text`.

    UsageError if the page does not have both comments, in this order.
    """
    page = path.read_text(encoding="utf-8")
    first, last = f"<!-- {name} -->", f"<!-- /{name} -->"
    start, stop = page.find(first), page.find(last)
    if start < 0 or stop < start:
        raise UsageError(f"{path}: expected {first} and {last}")
    report.replace(path, f"{page[: start + len(first)]}\n{text}\n{page[stop:]}")
