"""The record of updates: what is written is read back, and nothing else is accepted."""

import os
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st

from hogbatch.errors import DataError, UsageError
from hogbatch.telemetry.update_log import (
    COORDINATOR,
    FOLDER,
    PREFIX,
    RECORD,
    Kind,
    LogHeader,
    UpdateLog,
    files_without_header,
    read_file,
    read_folder,
    record,
)
from hogbatch.version import version

HEADER = LogHeader(version(), "run", "cpu-0", 0, "cpu", 2, 17)
COUNTS = st.integers(1, 2**32 - 1)


@dataclass
class Written:
    """A file with these records."""

    path: Path
    records: np.ndarray
    header_end: int


def write(folder, records, header=HEADER):
    log = UpdateLog.create(folder, header)
    log.append(records)
    log.close()
    (path,) = folder.glob(f"{header.name}.updates")
    return path


@pytest.fixture
def written(tmp_path):
    records = np.concatenate(
        [
            record(Kind.JOIN, 5, 5, thread=1),
            record(Kind.UPDATE, 10, 20, rows=3, batch_size=4, learning_rate=0.5, thread=1),
            record(Kind.MERGE, 15, 25, start=7, rows=8, batch_size=8, weight=0.25, staleness=2),
        ]
    )
    path = write(tmp_path / FOLDER, records)
    return Written(path, records, path.stat().st_size - records.nbytes)


@st.composite
def updates(draw):
    begin = draw(st.integers(0, 2**62))
    return record(
        *(Kind.UPDATE, begin, begin + draw(st.integers(1, 2**61))),
        start=draw(st.integers(0, 2**53)),
        rows=draw(COUNTS),
        batch_size=draw(COUNTS),
        learning_rate=draw(st.floats(allow_nan=False, allow_infinity=False)),
        epoch=draw(COUNTS),
        rollbacks=draw(COUNTS),
        number=draw(COUNTS),
        thread=draw(st.integers(0, 2**16 - 1)),
    )


@given(st.lists(updates(), max_size=5), st.text(st.characters(codec="utf-8"), max_size=20))
def test_records_are_read_back(tmp_path_factory, made, run):
    folder = tmp_path_factory.mktemp("run") / FOLDER
    records = np.concatenate([np.zeros(0, RECORD), *made])
    header = msgspec.structs.replace(HEADER, run=run)
    read = read_file(write(folder, records, header))
    assert read.records.tobytes() == records.tobytes()
    assert msgspec.structs.asdict(header).items() <= msgspec.structs.asdict(read.header).items()


def test_a_record_has_64_bytes_on_every_machine():
    assert RECORD.itemsize == 64
    assert all(RECORD[name].str[0] == "<" for name in RECORD.names)


def test_a_file_that_was_cut_anywhere_has_the_records_before(written):
    content = written.path.read_bytes()
    for size in range(len(content)):
        written.path.write_bytes(content[:size])
        if size < written.header_end:
            with pytest.raises(DataError, match=str(written.path)):
                read_file(written.path)
        else:
            whole = (size - written.header_end) // RECORD.itemsize
            assert read_file(written.path).records.tolist() == written.records[:whole].tolist()


@given(st.binary(max_size=300))
def test_other_files_are_refused(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("run") / "cpu-0.updates"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"cpu-0\.updates: "):
        read_file(path)


@pytest.mark.parametrize("start", ["header", "records"])
def test_a_changed_byte_is_refused_or_gives_other_values(written, start):
    """No byte of a file makes reading fail in another way than with one clear error."""
    content = bytearray(written.path.read_bytes())
    first = 0 if start == "header" else written.header_end
    last = written.header_end if start == "header" else len(content)
    for place in range(first, last):
        for value in (0, 255, content[place] ^ 1):
            changed = content.copy()
            changed[place] = value
            written.path.write_bytes(changed)
            try:
                read = read_file(written.path)
            except DataError as error:
                assert str(written.path) in str(error)
            else:
                assert len(read.records) <= len(written.records)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kind", 99),
        ("begin", -1),
        ("end", 9),
        ("start", -1),
        ("rows", 0),
        ("batch_size", 0),
        ("learning_rate", np.nan),
        ("weight", np.inf),
    ],
)
def test_a_damaged_record_is_named(tmp_path, written, name, value):
    records = written.records.copy()
    records[name][1] = value
    path = write(tmp_path / "damaged", records)
    with pytest.raises(DataError, match="record 1 of 3 is damaged"):
        read_file(path)


def test_a_record_of_another_version_is_refused(tmp_path, written):
    other = write(
        tmp_path / "other", written.records, msgspec.structs.replace(HEADER, hogbatch="9")
    )
    with pytest.raises(DataError, match="recorded by hogbatch 9, but this is"):
        read_file(other)
    content = bytearray(written.path.read_bytes())
    PREFIX.pack_into(content, 0, b"hogbupd\n", 2, PREFIX.unpack_from(content)[2])
    written.path.write_bytes(content)
    with pytest.raises(DataError, match="has format 2; this version reads format 1"):
        read_file(written.path)


def test_records_of_other_fields_are_refused(written):
    content = written.path.read_bytes()
    written.path.write_bytes(content.replace(b'"staleness"', b'"freshness"'))
    with pytest.raises(DataError, match="other fields"):
        read_file(written.path)


def test_a_restarted_worker_gets_a_new_file(tmp_path, written):
    again = UpdateLog.create(written.path.parent, HEADER)
    again.close()
    assert sorted(path.name for path in written.path.parent.iterdir()) == [
        "cpu-0.1.updates",
        "cpu-0.updates",
    ]
    assert len(read_file(written.path).records) == 3


def test_files_are_private(written):
    assert written.path.stat().st_mode & 0o777 == 0o600
    assert written.path.parent.stat().st_mode & 0o777 == 0o700


def test_a_full_disk_ends_the_recording_with_a_warning(tmp_path, monkeypatch, caplog):
    log = UpdateLog.create(tmp_path / FOLDER, HEADER)

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        log.append(record(Kind.JOIN, 1, 1))
    log.append(record(Kind.JOIN, 2, 2))
    assert "the recording of updates has stopped: No space left on device" in caplog.text
    assert len(read_file(next((tmp_path / FOLDER).iterdir())).records) == 0


def test_a_folder_that_cannot_be_created_is_named(tmp_path):
    (tmp_path / FOLDER).write_text("")
    with pytest.raises(UsageError, match="cannot record updates in"):
        UpdateLog.create(tmp_path / FOLDER, HEADER)


def test_the_file_of_the_coordinator_comes_first(tmp_path, written):
    with pytest.raises(UsageError, match="no record of its updates"):
        read_folder(tmp_path)
    header = msgspec.structs.replace(HEADER, name=COORDINATOR, worker=-1, identity={"seed": 0})
    write(tmp_path / FOLDER, np.zeros(0, RECORD), header)
    assert [file.header.name for file in read_folder(tmp_path)] == [COORDINATOR, "cpu-0"]


def test_workers_killed_before_their_first_record_are_left_out(tmp_path, written):
    folder = tmp_path / FOLDER
    coordinator = write(
        folder, np.zeros(0, RECORD), msgspec.structs.replace(HEADER, name=COORDINATOR)
    )
    content = written.path.read_bytes()
    for size in range(written.header_end):
        (folder / "cpu-1.updates").write_bytes(content[:size])
        assert [file.header.name for file in read_folder(tmp_path)] == [COORDINATOR, "cpu-0"]
        assert files_without_header(tmp_path) == [folder / "cpu-1.updates"]
    (folder / "cpu-1.updates").write_bytes(b"another file")
    with pytest.raises(DataError, match="this is not a record of updates"):
        read_folder(tmp_path)
    (folder / "cpu-1.updates").unlink()
    assert files_without_header(tmp_path) == []
    coordinator.write_bytes(b"")
    with pytest.raises(DataError, match=r"coordinator\.updates: .* truncated"):
        read_folder(tmp_path)


def test_records_of_two_runs_are_refused(tmp_path, written):
    header = msgspec.structs.replace(HEADER, name=COORDINATOR, run="another")
    write(tmp_path / FOLDER, np.zeros(0, RECORD), header)
    with pytest.raises(DataError, match="records of more than one run"):
        read_folder(tmp_path)
