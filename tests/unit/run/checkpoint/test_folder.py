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


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoints"


@pytest.fixture
def path(folder):
    return write(folder, ARRAYS, {"epoch": 3})


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def flip(file, place, bits=1):
    data = bytearray(file.read_bytes())
    data[place] ^= bits
    file.write_bytes(data)


def sealed(manifest):
    """A manifest with valid checksums."""
    rest = json.dumps(manifest).encode().replace(b"{", b" ", 1)
    return b'{"crc32": "%08x",%b' % (zlib.crc32(rest), rest)


class TestContent:
    def test_arrays_and_description_survive(self, folder):
        description = {"policy": {"batch": [1, 2.5, None]}, "über": "ß"}
        path = write(folder, ARRAYS, description)
        checkpoint = read(path)
        assert (checkpoint.path, checkpoint.description) == (path, description)
        assert checkpoint.arrays.keys() == ARRAYS.keys()
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(checkpoint.arrays[name], array, strict=True)
            assert checkpoint.arrays[name].flags.writeable

    @pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (3,), (3, 5)], ids=str)
    def test_every_dtype_and_shape_survives(self, folder, shape):
        random = np.random.default_rng(0)
        arrays = {each: np.array(random.integers(0, 2, shape), each) for each in DTYPES}
        checkpoint = read(write(folder, arrays, {}))
        for name, array in arrays.items():
            np.testing.assert_array_equal(checkpoint.arrays[name], array, strict=True)

    def test_no_arrays_are_a_checkpoint_too(self, folder):
        checkpoint = read(write(folder, {}, {}))
        assert (checkpoint.arrays, checkpoint.description) == ({}, {})

    def test_arrays_that_lie_otherwise_in_memory_keep_their_values(self, folder):
        whole = np.arange(24, dtype=np.int32).reshape(4, 6)
        arrays = {"columns": whole[:, ::2], "turned": whole.T, "big": whole.astype(">i4")}
        checkpoint = read(write(folder, arrays, {}))
        for name, array in arrays.items():
            np.testing.assert_array_equal(checkpoint.arrays[name], array)

    def test_other_programs_find_a_safetensors_file(self, folder):
        arrays = {each: np.ones(3, each) for each in DTYPES if each != "complex64"}
        arrays |= {"scalar": np.array(2.5), "empty": np.zeros((0, 3)), "ß": np.arange(4)}
        found = load_file(write(folder, arrays, {}) / "tensors.safetensors")
        assert found.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array, strict=True)

    def test_every_array_is_aligned_in_the_file(self, folder):
        arrays = {"flag": np.array([True]), "half": np.ones(1, np.float16), "double": np.ones(1)}
        data = (write(folder, arrays, {}) / "tensors.safetensors").read_bytes()
        end = 8 + int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:end]).items():
            assert (end + entry["data_offsets"][0]) % arrays[name].itemsize == 0

    @pytest.mark.parametrize("array", [np.ones(2, np.complex128), np.array(["a"])], ids=str)
    def test_a_dtype_that_safetensors_has_no_name_for_is_refused(self, folder, array):
        with pytest.raises(TypeError, match=rf"tensor x: expected one of .*; got {array.dtype}"):
            write(folder, {"x": array}, {})
        assert not folder.exists()


class TestDamage:
    @pytest.mark.parametrize("bits", [1, 32, 255])  # 32: an upper-case digit of a checksum
    @pytest.mark.parametrize("name", FILES)
    def test_no_flipped_byte_goes_unnoticed(self, path, name, bits):
        file = path / name
        for place in range(file.stat().st_size):
            flip(file, place, bits)
            with pytest.raises(DataError, match=re.escape(str(file))):
                read(path)
            flip(file, place, bits)
        assert read(path).description == {"epoch": 3}

    @pytest.mark.parametrize("name", FILES)
    def test_a_file_of_any_other_length_is_refused(self, path, name):
        file = path / name
        data = file.read_bytes()
        for length in range(len(data)):
            file.write_bytes(data[:length])
            with pytest.raises(DataError, match=re.escape(str(file))):
                read(path)
        for rest in (b"\0", b" ", b"\n"):
            file.write_bytes(data + rest)
            with pytest.raises(DataError, match=re.escape(str(file))):
                read(path)

    def test_the_damaged_tensor_is_named(self, path):
        flip(path / "tensors.safetensors", -1)
        with pytest.raises(DataError, match=r"tensor layers.0.weight is damaged"):
            read(path)

    def test_the_tensor_that_is_cut_off_is_named_with_its_bytes(self, path):
        file = path / "tensors.safetensors"
        file.write_bytes(file.read_bytes()[:-1])
        with pytest.raises(
            DataError, match=r"layers.0.weight is truncated: expected 24 bytes; got 23"
        ):
            read(path)

    @pytest.mark.parametrize("name", FILES)
    @pytest.mark.parametrize(
        ("kind", "message"), [("missing", "No such file"), ("directory", "Is a directory")]
    )
    def test_what_is_no_file_is_named(self, path, name, kind, message):
        (path / name).unlink()
        if kind == "directory":
            (path / name).mkdir()
        with pytest.raises(DataError, match=rf"{path / name}: cannot read .*: {message}"):
            read(path)

    @pytest.mark.parametrize("name", FILES)
    @pytest.mark.parametrize(
        "data", [b"", b"1 2:0.5\n" * 20, b"{}", b"[]", bytes(64), b"\xff" * 64]
    )
    def test_files_of_something_else_are_refused(self, path, name, data):
        (path / name).write_bytes(data)
        with pytest.raises(DataError, match=re.escape(str(path / name))):
            read(path)

    @pytest.mark.parametrize("kind", ["missing", "empty", "file"])
    def test_what_is_no_checkpoint_is_refused(self, tmp_path, kind):
        path = tmp_path / "000001"
        if kind == "empty":
            path.mkdir()
        elif kind == "file":
            path.touch()
        with pytest.raises(DataError, match=rf"{path / 'manifest.json'}: cannot read"):
            read(path)

    def test_the_tensors_of_another_checkpoint_are_refused(self, folder, path):
        other = write(folder, {name: array + 1 for name, array in ARRAYS.items()}, {})
        shutil.copy(other / "tensors.safetensors", path)
        with pytest.raises(DataError, match=r"tensor rows is damaged"):
            read(path)

    def test_another_format_is_named(self, path):
        (path / "manifest.json").write_bytes(sealed({"format": "hogbatch-checkpoint-9"}))
        with pytest.raises(DataError, match=f"expected the format {FORMAT}; got .*-9"):
            read(path)

    @pytest.mark.parametrize("part", ["header", "tensors", "description"])
    def test_a_manifest_that_lacks_something_is_refused(self, path, part):
        file = path / "manifest.json"
        manifest = json.loads(file.read_bytes())
        del manifest["crc32"], manifest[part]
        file.write_bytes(sealed(manifest))
        with pytest.raises(DataError, match=f"{file}: the manifest is incomplete: .*{part}"):
            read(path)


class TestFolder:
    def test_it_is_made_for_this_user_alone(self, folder, path):
        for each in (folder, path):
            assert each.stat().st_mode & 0o777 == 0o700
        assert names(path) == sorted(FILES)

    def test_its_name_reaches_the_disk_too(self, folder, monkeypatch):
        synced, real = [], os.fsync

        def fsync(descriptor):
            synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        write(folder, ARRAYS, {})
        assert synced[0] == str(folder.parent)
        assert synced[-1] == str(folder)

    def test_the_newest_comes_first(self, folder):
        written = [write(folder, ARRAYS, {"number": number}) for number in range(3)]
        assert [path.name for path in written] == ["000001", "000002", "000003"]
        assert paths(folder) == written[::-1]
        checkpoint, bad = newest_intact(folder)
        assert (checkpoint.description, bad) == ({"number": 2}, [])

    def test_numbers_go_on_beyond_six_digits(self, folder, path):
        path.rename(folder / "999999")
        assert write(folder, ARRAYS, {}).name == "1000000"
        assert [path.name for path in paths(folder)] == ["1000000", "999999"]

    def test_nothing_but_numbers_is_a_checkpoint(self, folder, path):
        for name in (".000002.x.tmp", "000003.bak", "12345", "x"):
            shutil.copytree(path, folder / name)
        assert paths(folder) == [path]

    def test_bad_ones_are_skipped_with_the_reason(self, folder):
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

    def test_there_may_be_no_good_one(self, folder, path):
        (path / "tensors.safetensors").unlink()
        checkpoint, bad = newest_intact(folder)
        assert checkpoint is None
        assert len(bad) == 1

    def test_one_that_is_refused_when_it_is_written_never_appears(self, folder):
        def check():
            assert names(folder) == []
            raise KeyError

        with pytest.raises(KeyError):
            write(folder, ARRAYS, {}, check)
        assert names(folder) == []

    def test_there_may_be_no_folder(self, folder):
        prune(folder, 3)
        assert newest_intact(folder) == (None, [])

    def test_a_folder_that_cannot_be_listed_is_named(self, folder, caplog):
        folder.touch()
        prune(folder, 3)
        assert f"{folder}: cannot remove it: Not a directory" in caplog.text
        reason = f"{folder}: cannot list checkpoints: Not a directory"
        assert newest_intact(folder) == (None, [reason])


class TestPrune:
    def test_the_newest_are_kept_and_numbers_rise(self, folder):
        for number in range(5):
            write(folder, ARRAYS, {"number": number})
            prune(folder, 3)
        assert names(folder) == ["000003", "000004", "000005"]
        assert [read(path).description["number"] for path in paths(folder)] == [4, 3, 2]

    def test_what_killed_writers_have_left_goes(self, folder, path):
        shutil.copytree(path, folder / ".000002.x.tmp")
        (folder / ".000002.y.tmp").touch()
        (folder / ".000002.z.tmp").symlink_to(path)
        (folder / "notes").touch()
        prune(folder, 3)
        assert names(folder) == ["000001", "notes"]
        assert read(path).description == {"epoch": 3}

    def test_what_is_not_of_a_checkpoint_stays(self, folder, path, caplog):
        (path / "notes").touch()
        (folder / ".mine.tmp").touch()
        (folder / "000002").touch()
        prune(folder, 0)
        assert names(folder) == [".mine.tmp", "000001", "000002"]
        assert len(names(path)) == 3
        assert f"{path}: not removed, because it also contains notes" in caplog.text

    @pytest.mark.parametrize(("module", "call"), [(os, "rename"), (os, "rmdir")])
    def test_what_may_not_be_removed_is_logged(self, folder, monkeypatch, caplog, module, call):
        for _ in range(3):
            write(folder, ARRAYS, {})
        real = getattr(module, call)

        def refuse(path, *arguments):
            if "000001" in path.name:
                raise PermissionError(1, "Operation not permitted")
            real(path, *arguments)

        monkeypatch.setattr(module, call, refuse)
        prune(folder, 1)
        assert re.search(r"000001.*: cannot remove it: Operation not permitted", caplog.text)
        assert names(folder) == [
            "000001" if call == "rename" else ".000001.old.tmp",
            "000003",
        ]
