import gzip

import pytest

from hogbatch.data import arrays, csv, libsvm, xmc
from hogbatch.data.readers import READERS, read
from hogbatch.errors import DataError, UsageError

TEXTS = {
    libsvm.read: "1 1:2\n-1 2:3\n",
    xmc.read: "2 3 4\n0,1 1:2\n 2:3\n",
    csv.read: "a,b\n1,2\n3,4\n",
}
TEXT_ENDINGS = [ending for ending, reader in READERS.items() if reader is not arrays.read]


@pytest.mark.parametrize("ending", TEXT_ENDINGS)
@pytest.mark.parametrize("zipped", ["", ".gz"])
def test_the_name_tells_the_format(write, ending, zipped):
    text = TEXTS[READERS[ending]].replace(",", "\t" if ending == ".tsv" else ",").encode()
    for name in (f"data{ending}{zipped}", f"data{ending.upper()}{zipped}"):
        assert read(write(name, gzip.compress(text) if zipped else text)).rows == 2


@pytest.mark.parametrize("name", ["a.txt", "a.dat", "a", "a.t", "a.txt.gz"])
@pytest.mark.parametrize("reader", TEXTS)
def test_the_first_lines_tell_the_format_where_the_name_does_not(write, name, reader):
    text = TEXTS[reader].encode()
    path = write(name, gzip.compress(text) if name.endswith(".gz") else text)
    raw = read(path)
    assert raw.rows == 2
    assert bool(len(raw.inputs.indptr)) == (reader is not csv.read)
    assert bool(raw.classes_hint) == (reader is xmc.read)


def test_rows_without_features_do_not_hide_a_libsvm_file(write):
    assert read(write("a.txt", "# made by hand\n-1\n+1\n-1 3:1\n")).features == 3


@pytest.mark.parametrize("content", [b"hello world\n", b"1\n2\n", b"\x7fELF\x00\xff\n"])
def test_a_format_nobody_can_tell_is_an_error(write, content):
    with pytest.raises(DataError, match=r"a\.txt: neither the name nor the first lines"):
        read(write("a.txt", content))


def test_an_empty_or_missing_file_without_a_telling_name(write, tmp_path):
    with pytest.raises(DataError, match=r"a\.txt is empty"):
        read(write("a.txt", ""))
    with pytest.raises(DataError, match="no such file"):
        read(tmp_path / "b.txt")


def test_an_index_base_of_two_is_refused(write):
    with pytest.raises(UsageError, match="index base must be 0 or 1; got 2"):
        read(write("a.svm", "1 1:1\n"), index_base=2)
