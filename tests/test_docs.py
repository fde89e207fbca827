"""The documentation names nothing that does not exist, and prints the order of imports as it is."""

import re

import pytest

from tests.support.doc_references import anchors, complaints
from tests.support.tracked_files import ROOT, tracked_files
from tests.test_layers import LAYERS

CHANGELOG = ROOT / "CHANGELOG.md"  # may name what was removed
DOCS = [path for path in sorted(tracked_files()) if path.suffix == ".md" and path != CHANGELOG]
ARCHITECTURE = ROOT / "docs" / "architecture.md"
IMPORT_ORDER = re.compile(r"^```import-order\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_every_reference_exists():
    found = {str(path.relative_to(ROOT)): complaints(path.read_text(), path) for path in DOCS}
    assert {path: each for path, each in found.items() if each} == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[data](docs/data.md)", None),
        ("[data](docs/gone.md)", "the link docs/gone.md leads nowhere"),
        ("[contributing](CONTRIBUTING.md#contributing)", None),
        ("[contributing](CONTRIBUTING.md#gone)", "CONTRIBUTING.md#gone: there is no such heading"),
        ("[the web](https://example.org/gone.md)", None),
        ("`tests/test_docs.py`", None),
        ("`coordinator/state.py`", None),
        ("`unit/cli/test_main.py`", None),
        ("`state.py`", None),
        ("`coordinator/gone.py`", "coordinator/gone.py does not exist"),
        ("`gone.py`", "gone.py does not exist"),
        ("`coordinator/`", None),
        ("`gone/`", "gone/ does not exist"),
        ("`coordinator/state.py/`", "coordinator/state.py/ does not exist"),
        ("`previous-run/`", None),
        ("`RUN_DIR/checkpoints/000012`", None),
        ("`coordinator/state.py: Coordinator`", None),
        ("`coordinator/state.py: Coordinator.begin`", None),
        ("`coordinator/state.py: Gone`", "state.py: Gone: coordinator/state.py has no Gone"),
        ("`coordinator/state.py: Coordinator.gone`", "has no Coordinator.gone"),
        ("`test_docs.py::test_every_reference_exists`", None),
        ("`test_docs.py::test_gone`", "test_docs.py has no test_gone"),
        ("`coordinator/gone.py: Gone`", "there is no coordinator/gone.py"),
        ("`hogbatch.train`", None),
        ("`hogbatch.coordinator.state.Coordinator`", None),
        ("`hogbatch.coordinator.gone`", "hogbatch.coordinator.gone does not exist"),
        ("`hogbatch.coordinator.state.Gone`", "hogbatch.coordinator.state.Gone does not exist"),
        ("```python\nfrom hogbatch.errors import UsageError\n```", None),
        (
            "```python\nfrom hogbatch.errors import UsageError, Gone\n```",
            "README.md:2: hogbatch.errors has no Gone",
        ),
        ("`--lease-ms 20`", None),
        ("`--require gpu`", None),
        ("`scripts/test --fast`", None),
        ("`scripts/gone --fast`", "scripts/gone does not exist"),
        ("`hogbatch train --gone 3`", "there is no flag --gone"),
        ("text\n\n```sh\nhogbatch train --gone 3\n```", "README.md:4: there is no flag --gone"),
        ("text\n`a span over\n--gone lines`", "README.md:2: there is no flag --gone"),
        ("prose -- with a dash, and --gone outside of code", None),
        ("``a `nested` --gone``", "there is no flag --gone"),
    ],
)
def test_a_reference_is_checked(text, found):
    said = complaints(text, ROOT / "README.md")
    assert said == [] if found is None else len(said) == 1 and found in said[0]


def test_anchors_are_those_of_the_headings():
    text = "# One `word`, *two*\n## A-b c\n```\n# no heading\n```\n"
    assert anchors(text) == {"one-word-two", "a-b-c"}


def import_order(text):
    """The layers that a text prints, low to high."""
    (block,) = IMPORT_ORDER.findall(text)
    return block.split()


def test_the_order_of_imports_is_printed_as_it_is():
    assert import_order(ARCHITECTURE.read_text()) == LAYERS


def test_a_page_without_the_order_of_imports_is_found():
    assert import_order("text\n```import-order\na b\nc\n```\ntext\n") == ["a", "b", "c"]
    with pytest.raises(ValueError, match="not enough values"):
        import_order("text\n```\na b\nc\n```\n")
