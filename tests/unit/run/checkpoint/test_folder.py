import json
import os
import re
import shutil
import zlib

import numpy as np
import pytest
from safetensors.numpy import load_file

from hogbatch.errors import DataError
from hogbatch.model.tensors import DTYPES
from hogbatch.run.checkpoint.folder import FORMAT, newest_intact, paths, prune, read, write

ARRAYS = {"layers.0.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "rows": np.array([7])}
FILES = ["tensors.safetensors", "manifest.json"]
files = pytest.mark.parametrize("name", FILES)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoints"


@pytest.fixture
def path(folder):
    return write(folder, ARRAYS, {"epoch": 3})


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def expect_arrays(found, arrays):
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array, strict=True)


def expect_refusal(path, message):
    with pytest.raises(DataError, match=message):
        read(path)


def flip(file, place, bits=1):
    data = bytearray(file.read_bytes())
    data[place] ^= bits
    file.write_bytes(data)


def sealed(manifest):
    """A manifest with valid checksums."""
    rest = json.dumps(manifest).encode().replace(b"{", b" ", 1)
    return b'{"crc32": "%08x",%b' % (zlib.crc32(rest), rest)


# Contents ----------------------------------------------------------------------------------------


def test_arrays_and_description_survive(folder):
    description = {"policy": {"batch": [1, 2.5, None]}, "über": "ß"}
    for arrays in (ARRAYS, {}):
        path = write(folder, arrays, description)
        checkpoint = read(path)
        assert (checkpoint.path, checkpoint.description) == (path, description)
        expect_arrays(checkpoint.arrays, arrays)
        assert all(array.flags.writeable for array in checkpoint.arrays.values())


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (3,), (3, 5)], ids=str)
def test_every_dtype_and_shape_survives_also_for_other_programs(folder, shape):
    random = np.random.default_rng(0)
    arrays = {each: np.array(random.integers(0, 2, shape), each) for each in DTYPES}
    expect_arrays(read(write(folder, arrays, {})).arrays, arrays)
    del arrays["complex64"]  # which the package does not read
    path = write(folder, arrays | {"ß": np.arange(4)}, {})
    expect_arrays(load_file(path / "tensors.safetensors"), arrays | {"ß": np.arange(4)})


def test_arrays_that_lie_otherwise_in_memory_keep_their_values(folder):
    whole = np.arange(24, dtype=np.int32).reshape(4, 6)
    arrays = {"columns": whole[:, ::2], "turned": whole.T, "big": whole.astype(">i4")}
    found = read(write(folder, arrays, {})).arrays
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("array", [np.ones(2, np.complex128), np.array(["a"])], ids=str)
def test_a_dtype_that_safetensors_has_no_name_for_is_refused(folder, array):
    with pytest.raises(TypeError, match=rf"tensor x: expected one of .*; got {array.dtype}"):
        write(folder, {"x": array}, {})
    assert not folder.exists()


# Damage ------------------------------------------------------------------------------------------


@files
def test_no_flipped_byte_goes_unnoticed(path, name):
    file = path / name
    for place in range(file.stat().st_size):
        bits = (1, 32, 255)[place % 3]  # 32: an upper-case digit of a checksum
        flip(file, place, bits)
        expect_refusal(path, re.escape(str(file)))
        flip(file, place, bits)
    assert read(path).description == {"epoch": 3}


@files
def test_a_file_of_any_other_length_is_refused(path, name):
    """And what is no such file."""
    file = path / name
    data = file.read_bytes()
    others = (data + b"\0", data + b"\n", b"1 2:0.5\n" * 20, b"{}", b"[]", bytes(64), b"\xff" * 64)
    for changed in (*(data[:length] for length in range(len(data))), *others):
        file.write_bytes(changed)
        expect_refusal(path, re.escape(str(file)))
    file.unlink()
    expect_refusal(path, f"{file}: cannot read .*: No such file")
    file.mkdir()
    expect_refusal(path, f"{file}: cannot read .*: Is a directory")


def test_the_damaged_tensor_is_named(folder, path):
    file = path / "tensors.safetensors"
    flip(file, -1)
    expect_refusal(path, "tensor layers.0.weight is damaged")
    file.write_bytes(file.read_bytes()[:-1])
    expect_refusal(path, r"expected \d+ bytes as stated in its manifest; got \d+")
    other = write(folder, {name: array + 1 for name, array in ARRAYS.items()}, {})
    shutil.copy(other / "tensors.safetensors", path)
    expect_refusal(path, "tensor rows is damaged")


def test_a_manifest_of_another_format_or_that_lacks_something_is_refused(path):
    file = path / "manifest.json"
    manifest = json.loads(file.read_bytes())
    del manifest["crc32"]
    file.write_bytes(sealed(manifest | {"format": "hogbatch-checkpoint-9"}))
    expect_refusal(path, f"expected the format {FORMAT}; got .*-9")
    for part in ("header", "tensors", "description"):
        file.write_bytes(sealed({key: each for key, each in manifest.items() if key != part}))
        expect_refusal(path, f"{file}: not a valid manifest: Object missing .*`{part}`")


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        ({"dtype": "object"}, r"Expected one of bool, .*; got 'object' - at `\$.tensors"),
        ({"dtype": 1}, "Expected `str`, got `int`"),
        ({"shape": [-6]}, "Expected `int` >= 0"),
        ({"shape": [10**30]}, "not a valid manifest"),
        ({"shape": [0, 2**40, 2**40]}, r"at most 2\^60 cells"),
        ({"shape": [2**50]}, r"expected \d+ bytes as stated in its manifest; got \d+"),
        ({"crc32": 2**32}, "Expected `int` <= 4294967295"),
    ],
)
def test_a_tensor_that_cannot_be_is_named_before_memory_is_allocated(path, tensor, message):
    file = path / "manifest.json"
    manifest = json.loads(file.read_bytes())
    del manifest["crc32"]
    manifest["tensors"]["rows"] |= tensor
    file.write_bytes(sealed(manifest))
    expect_refusal(path, message)


# The folder --------------------------------------------------------------------------------------


def test_it_is_made_for_this_user_alone_and_its_name_reaches_the_disk_too(folder, monkeypatch):
    synced, real = [], os.fsync

    def fsync(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    path = write(folder, ARRAYS, {})
    assert (synced[0], synced[-1]) == (str(folder.parent), str(folder))
    assert [each.stat().st_mode & 0o777 for each in (folder, path)] == [0o700] * 2
    assert names(path) == sorted(FILES)


def test_the_newest_comes_first_and_numbers_go_on_beyond_six_digits(folder):
    first, second = (write(folder, ARRAYS, {"number": number}) for number in range(2))
    assert [first.name, second.name] == ["000001", "000002"]
    second = second.rename(folder / "999999")
    third = write(folder, ARRAYS, {"number": 2})
    assert third.name == "1000000" and paths(folder) == [third, second, first]
    for name in (".000002.x.tmp", "000003.bak", "12345", "x"):
        shutil.copytree(third, folder / name)
    assert paths(folder) == [third, second, first], "only numbers are checkpoints"


def test_bad_ones_are_skipped_with_the_reason(folder):
    good, flipped, unlisted, empty = (write(folder, ARRAYS, {}) for _ in range(4))
    flip(flipped / "tensors.safetensors", -1)
    (unlisted / "manifest.json").unlink()
    shutil.rmtree(empty)
    empty.mkdir()
    checkpoint, bad = newest_intact(folder)
    assert checkpoint.path == good
    assert [re.sub(r".*/(\d+/)", r"\1", each) for each in bad] == [
        "000004/manifest.json: cannot read the checkpoint: No such file or directory",
        "000003/manifest.json: cannot read the checkpoint: No such file or directory",
        "000002/tensors.safetensors: tensor layers.0.weight is damaged (CRC-32 mismatch)",
    ]
    shutil.rmtree(good)
    assert newest_intact(folder) == (None, bad)


def test_one_that_is_refused_when_it_is_written_never_appears(folder):
    def check():
        assert paths(folder) == []
        raise KeyError

    with pytest.raises(KeyError):
        write(folder, ARRAYS, {}, check)
    assert names(folder) == []


def test_there_may_be_no_folder_or_one_that_cannot_be_listed(folder, caplog):
    prune(folder, 3)
    assert newest_intact(folder) == (None, [])
    folder.touch()
    prune(folder, 3)
    assert f"{folder}: cannot remove it: Not a directory" in caplog.text
    reason = f"{folder}: cannot list checkpoints: Not a directory"
    assert newest_intact(folder) == (None, [reason])


def test_the_newest_are_kept_and_numbers_rise(folder):
    for number in range(5):
        write(folder, ARRAYS, {"number": number})
        prune(folder, 3)
    assert names(folder) == ["000003", "000004", "000005"]
    assert [read(path).description["number"] for path in paths(folder)] == [4, 3, 2]


def test_what_killed_writers_have_left_is_removed_and_nothing_else(folder, path, caplog):
    shutil.copytree(path, folder / ".000002.x.tmp")
    (folder / ".000002.y.tmp").touch()
    (folder / ".000002.z.tmp").symlink_to(path)
    for mine in (path / "notes", folder / ".mine.tmp", folder / "000002", folder / "notes"):
        mine.touch()
    prune(folder, 0)
    assert names(folder) == [".mine.tmp", "000001", "000002", "notes"]
    assert len(names(path)) == 3 and read(path).description == {"epoch": 3}
    assert f"{path}: not removed, because it also contains notes" in caplog.text


@pytest.mark.parametrize(("call", "left"), [("rename", "000001"), ("rmdir", ".000001.old.tmp")])
def test_what_may_not_be_removed_is_logged(folder, monkeypatch, caplog, call, left):
    for _ in range(3):
        write(folder, ARRAYS, {})
    real = getattr(os, call)

    def refuse(path, *arguments, **keywords):
        if "000001" in str(path):
            raise PermissionError(1, "Operation not permitted")
        real(path, *arguments, **keywords)

    monkeypatch.setattr(os, call, refuse)
    prune(folder, 1)
    assert re.search(r"000001.*: cannot remove it: Operation not permitted", caplog.text)
    assert names(folder) == [left, "000003"]
