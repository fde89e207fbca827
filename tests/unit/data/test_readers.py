import gzip
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from hogbatch.data import arrays, csv, libsvm, text, xmc
from hogbatch.data.readers import READERS, RELEVANT_OPTIONS
from hogbatch.data.samples import SAMPLES
from hogbatch.data.signatures import SUPPORTED
from hogbatch.errors import DataError, UsageError
from tests.support.reading import read

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
    csv.read: Example(
        "CSV",
        small="a,b\n1,2\n3,4\n",
        large="x,y,z\n" + "".join(f"{a},{b / 3},{c}\n" for a, b, c in NUMBERS),
        sparse=False,
    ),
}
TEXT_ENDINGS = [ending for ending, reader in READERS.items() if reader is not arrays.read]
PAGE = Path(__file__).parents[3] / "docs" / "data.md"

every_text_format = pytest.mark.parametrize(
    "reader", EXAMPLES, ids=lambda reader: reader.__module__.rpartition(".")[2]
)


def assert_kind(raw, example):
    """Check the kinds of inputs and labels."""
    assert bool(len(raw.inputs.indptr)) == example.sparse
    assert (raw.label_lists is not None) == example.lists


def test_every_text_format_has_a_cache_key_and_an_example_in_this_file():
    readers = {READERS[ending] for ending in TEXT_ENDINGS}
    assert readers == set(RELEVANT_OPTIONS)
    assert readers == set(EXAMPLES)


@every_text_format
def test_messages_about_unknown_files_list_every_text_format(write, reader):
    with pytest.raises(DataError, match="cannot determine the format") as error:
        read(write("a.txt", "hello world\n"))
    assert EXAMPLES[reader].name in str(error.value)
    assert EXAMPLES[reader].name in SUPPORTED


@pytest.mark.parametrize("ending", READERS)
def test_the_readme_lists_every_ending(ending):
    assert re.search(
        rf"^\|[^|]+\|[^|]*{re.escape(ending)}[ `]", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )


@pytest.mark.parametrize("ending", TEXT_ENDINGS)
@pytest.mark.parametrize("zipped", ["", ".gz"])
def test_the_name_tells_the_format(write, ending, zipped):
    content = (
        EXAMPLES[READERS[ending]].small.replace(",", "\t" if ending == ".tsv" else ",").encode()
    )
    for name in (f"data{ending}{zipped}", f"data{ending.upper()}{zipped}"):
        assert read(write(name, gzip.compress(content) if zipped else content)).rows == 2


@pytest.mark.parametrize("name", ["a.txt", "a.dat", "a", "a.t", "a.txt.gz"])
@every_text_format
def test_the_first_lines_tell_the_format_where_the_name_does_not(write, name, reader):
    content = EXAMPLES[reader].small.encode()
    path = write(name, gzip.compress(content) if name.endswith(".gz") else content)
    raw = read(path)
    assert raw.rows == 2
    assert_kind(raw, EXAMPLES[reader])


def test_rows_without_features_do_not_hide_a_libsvm_file(write):
    assert read(write("a.txt", "# made by hand\n-1\n+1\n-1 3:1\n")).features == 3


@pytest.mark.parametrize("content", [b"hello world\n", b"1\n2\n"])
def test_a_format_nobody_can_tell_is_an_error(write, content):
    with pytest.raises(
        DataError, match=r"a\.txt: cannot determine the format from the name or first lines"
    ):
        read(write("a.txt", content))


def test_an_empty_or_missing_file_without_a_telling_name(write, tmp_path):
    with pytest.raises(DataError, match=r"a\.txt is empty"):
        read(write("a.txt", ""))
    with pytest.raises(DataError, match="no such file"):
        read(tmp_path / "b.txt")


def test_an_index_base_of_two_is_refused(write):
    with pytest.raises(UsageError, match="index base must be 0 or 1; got 2"):
        read(write("a.svm", "1 1:1\n"), index_base=2)


@every_text_format
@pytest.mark.parametrize("zipped", ["", ".gz"])
def test_any_number_of_threads_reads_alike(write, monkeypatch, reader, zipped):
    monkeypatch.setattr(text, "BLOCK_BYTES", 64)
    content = EXAMPLES[reader].large.encode()
    ending = next(ending for ending in TEXT_ENDINGS if READERS[ending] is reader)
    name = f"a{ending}{zipped}"
    path = write(name, gzip.compress(content) if zipped else content)
    one, *others = (read(path, threads=threads) for threads in (1, 2, 3, None))
    monkeypatch.setattr(text, "BLOCK_BYTES", 1 << 20)
    for other in (*others, read(path)):
        for left, right in zip(one.inputs, other.inputs, strict=True):
            np.testing.assert_array_equal(left, right, strict=True)
        np.testing.assert_array_equal(one.labels, other.labels)
        np.testing.assert_array_equal(one.lines, other.lines, strict=True)
    assert_kind(one, EXAMPLES[reader])
    assert one.rows == 200


SMALL = """
import sys
from tests.support.reading import read
for path in sys.argv[1:]:
    read(path)
print("numba" in sys.modules)
"""


def test_small_files_are_read_without_the_compiler(write):
    paths = [write("a.svm", "1 1:2\n"), write("a.csv", "1,2\n"), SAMPLES["a9a"].train]
    done = subprocess.run(
        [sys.executable, "-c", SMALL, *paths], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan")])
def test_a_share_of_bad_lines_outside_its_range_is_refused(write, fraction):
    with pytest.raises(UsageError, match="bad lines must be a fraction from 0 to 1; got"):
        read(write("a.csv", "1,2\n"), bad_lines=fraction)


LONG = 20_000_000  # bytes


@pytest.mark.parametrize(
    ("name", "before", "long", "after", "place"),
    [
        ("a.svm", "1 1:1\n", "x" * LONG, "\n-1 2:1\n", "2:1"),
        ("a.svm", "1 1:1\n", "1 1:" + "1" * LONG, "\n-1 2:1", "2:5"),
        ("a.svm", "1 1:1\n-1 2:1\n", "1 " + " " * LONG + "y", "", f"3:{LONG + 3}"),
        ("a.xmc", "3 9 9\n1 1:1\n", "1 " + "1" * LONG + ":1", "\n2 2:1\n", "3:3"),
        ("a.csv", "1,2\n", "y" * LONG, "\n3,4\n", f"2:{LONG + 1}"),
        ("a.csv", "1,2\n", "1,2" + ",3" * (LONG // 2), "\n3,4\n", "2:5"),
    ],
    ids=["text", "digits", "blanks", "an index", "one cell", "cells"],
)
def test_a_line_of_20_mb_is_a_bad_line_like_any_other(write, name, before, long, after, place):
    path = write(name, before + long + after)
    raw = read(path, bad_lines=0.34)
    assert (raw.rows, raw.skipped.total) == (2, 1)
    assert raw.skipped.first[0].describe("a").startswith(f"a:{place}: ")
    assert len(raw.skipped.first[0].reason) < 200


def test_memory_that_cannot_be_had_is_one_sentence(write, monkeypatch):
    monkeypatch.setitem(READERS, ".csv", lambda path, options: np.empty(1 << 60, np.uint8))
    with pytest.raises(UsageError, match=r"a\.csv: not enough memory to read it: Unable to"):
        read(write("a.csv", "1,2\n"))
