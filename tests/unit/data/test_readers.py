import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from hogbatch.data import arrays, libsvm, text, time_series, xmc
from hogbatch.data.readers import READERS, RELEVANT_OPTIONS
from hogbatch.data.samples import SAMPLES
from hogbatch.data.signatures import SUPPORTED
from hogbatch.data.table import read as table
from hogbatch.errors import UsageError
from tests.support.pairs import pairs
from tests.support.reading import packed, read, read_error

NUMBERS = np.arange(600).reshape(-1, 3)


class Example(NamedTuple):
    """Files in a text format."""

    name: str  # of the format in messages
    small: str  # 2 rows
    large: str  # 200 rows
    sparse: bool = True  # CSR rows
    lists: bool = False  # lists of labels


EXAMPLES = {
    libsvm.read: Example(
        "svmlight/libsvm",
        small="1 1:2\n-1 2:3\n",
        large="".join(f"{a % 2} {a + 1}:{b / 7} {a + 2}:{c / 3}\n" for a, b, c in NUMBERS),
    ),
    xmc.read: Example(
        "XMC text",
        small="2 3 4\n0,1 1:2\n 2:3\n",
        large="200 900 3\n" + "".join(f"{b % 3} {a}:{c / 9}\n" for a, b, c in NUMBERS),
        lists=True,
    ),
    table.read: Example(
        "CSV",
        small="a,b\n1,2\n3,4\n",
        large="x,y,z\n" + "".join(f"{a},{b / 3},{c}\n" for a, b, c in NUMBERS),
        sparse=False,
    ),
}
OF_ARRAYS = arrays.read, time_series.read  # these have tests of their own
TEXT_ENDINGS = [ending for ending, reader in READERS.items() if reader not in OF_ARRAYS]
NAMES = {"libsvm": libsvm.read, "xmc": xmc.read, "csv": table.read}
PAGE = Path(__file__).parents[3] / "docs" / "data.md"


def assert_kind(raw, example):
    """Check the kinds of inputs and labels."""
    assert bool(len(raw.inputs.indptr)) == example.sparse
    assert (raw.label_lists is not None) == example.lists


def test_every_text_format_has_a_cache_key_an_example_in_this_file_and_a_name_in_messages(write):
    readers = {READERS[ending] for ending in TEXT_ENDINGS}
    assert readers == {*RELEVANT_OPTIONS, table.read} == set(EXAMPLES)
    for content in (b"hello world\n", b"1\n2\n"):
        found = read_error(write("a.txt", content))
        assert "a.txt: cannot determine the format from the name or first lines" in found
        assert all(example.name in found for example in EXAMPLES.values())
    assert all(example.name in SUPPORTED for example in EXAMPLES.values())


@pytest.mark.parametrize("ending", READERS)
def test_the_documentation_lists_every_ending(ending):
    row = rf"^\|[^|]+\|[^|]*{re.escape(ending)}[ `]"
    assert re.search(row, PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("ending", TEXT_ENDINGS)
def test_the_name_tells_the_format(write, ending):
    content = EXAMPLES[READERS[ending]].small.replace(",", "\t" if ending == ".tsv" else ",")
    for name in (f"data{ending}", f"data{ending.upper()}.gz"):
        assert read(write(name, packed(name, content))).rows == 2


@pairs(name=["a.txt", "a", "a.txt.gz"], reader=NAMES)
def test_the_first_lines_tell_the_format_where_the_name_does_not(write, name, reader):
    raw = read(write(name, packed(name, EXAMPLES[reader].small)))
    assert raw.rows == 2
    assert_kind(raw, EXAMPLES[reader])


def test_files_without_a_telling_name(write, tmp_path):
    assert read(write("a.txt", "# made by hand\n-1\n+1\n-1 3:1\n")).features == 3
    assert "a.txt is empty" in read_error(write("a.txt", ""))
    assert "no such file" in read_error(tmp_path / "b.txt")
    (tmp_path / "folder.npz").mkdir()
    complaint = "expected a file, or a folder of table files"
    assert complaint in read_error(tmp_path / "folder.npz")


@pairs(reader=NAMES, zipped=["", ".gz"])
def test_any_number_of_threads_and_size_of_blocks_reads_alike(write, monkeypatch, reader, zipped):
    ending = next(ending for ending in TEXT_ENDINGS if READERS[ending] is reader)
    name = f"a{ending}{zipped}"
    path = write(name, packed(name, EXAMPLES[reader].large))
    one = read(path)
    monkeypatch.setattr(text, "BLOCK_BYTES", 64)
    for threads in (1, 3, None):
        other = read(path, threads=threads)
        for left, right in zip(one.inputs, other.inputs, strict=True):
            np.testing.assert_array_equal(left, right, strict=True)
        np.testing.assert_array_equal(one.labels, other.labels)
        np.testing.assert_array_equal(one.lines, other.lines, strict=True)
    assert_kind(one, EXAMPLES[reader])
    assert one.rows == 200


SMALL = """
import sys
from hogbatch.data.raw import ReadOptions
from hogbatch.data.readers import read_as
for path in sys.argv[1:]:
    read_as(path, ReadOptions())
print("numba" in sys.modules)
"""


def test_small_files_are_read_without_the_compiler(write):
    paths = [write("a.svm", "1 1:2\n"), write("a.csv", "1,2\n"), SAMPLES["a9a"]["test"]]
    done = subprocess.run(
        [sys.executable, "-c", SMALL, *paths], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


LONG = 6_000_000  # bytes, more than a block


@pytest.mark.parametrize(
    ("name", "before", "long", "after", "place"),
    [
        ("a.svm", "1 1:1\n", "1 1:" + "1" * LONG, "\n-1 2:1", "2:5"),
        ("a.svm", "1 1:1\n-1 2:1\n", "1 " + " " * LONG + "y", "", f"3:{LONG + 3}"),
    ],
    ids=["digits", "blanks"],
)
def test_a_long_line_is_a_bad_line_like_any_other(write, name, before, long, after, place):
    raw = read(write(name, before + long + after), bad_lines=0.34)
    assert (raw.rows, raw.skipped.total) == (2, 1)
    assert raw.skipped.first[0].describe("a").startswith(f"a:{place}: ")
    assert len(raw.skipped.first[0].reason) < 200


def test_memory_that_cannot_be_had_has_a_reason_also_without_one_from_python(write, monkeypatch):
    def decompress(path, options):
        raise MemoryError

    monkeypatch.setitem(READERS, ".svm", decompress)
    with pytest.raises(UsageError, match="not enough memory to read it: an allocation failed; use"):
        read(write("a.svm", "1 1:1"))


def test_memory_that_cannot_be_had_is_one_sentence(write, monkeypatch):
    monkeypatch.setitem(READERS, ".svm", lambda path, options: np.empty(1 << 60, np.uint8))
    with pytest.raises(UsageError, match=r"a\.svm: not enough memory to read it: Unable to"):
        read(write("a.svm", "1 1:2\n"))
