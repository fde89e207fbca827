import json
import os

import pytest

from hogbatch.errors import UsageError
from hogbatch.events import marker

NAMES = ("lock", "model", "log")


def test_what_was_claimed_is_listed(tmp_path):
    assert marker.listed(tmp_path) is None
    assert marker.claim(tmp_path, NAMES, "lock")
    assert marker.listed(tmp_path) == {*NAMES}
    assert os.listdir(tmp_path) == [marker.NAME]
    written = json.loads((tmp_path / marker.NAME).read_text())
    assert written == {"format": marker.FORMAT, "files": sorted(NAMES)}


def test_files_of_the_run_itself_may_be_there(tmp_path):
    marker.claim(tmp_path, NAMES, "lock")
    for name in NAMES:
        (tmp_path / name).touch()
    assert not marker.claim(tmp_path, NAMES, "lock")
    marker.extend(tmp_path, NAMES)


def test_a_file_of_another_origin_is_refused_and_nothing_is_written(tmp_path):
    (tmp_path / "model").symlink_to("nowhere")
    with pytest.raises(UsageError, match=f"{tmp_path}/model does not belong to a run .*--run-dir"):
        marker.claim(tmp_path, NAMES, "lock")
    assert os.listdir(tmp_path) == ["model"]


def test_the_file_that_is_locked_next_must_be_listed(tmp_path):
    marker.claim(tmp_path, ["model"], "lock")
    (tmp_path / "lock").write_text("mine")
    with pytest.raises(UsageError, match=f"{tmp_path}/lock does not belong to a run"):
        marker.claim(tmp_path, NAMES, "lock")


def test_more_names_are_added_unless_they_are_taken(tmp_path):
    marker.claim(tmp_path, NAMES, "lock")
    marker.extend(tmp_path, ["log-2"])
    assert marker.listed(tmp_path) == {*NAMES, "log-2"}
    (tmp_path / "log-3").touch()
    with pytest.raises(UsageError, match="log-3 does not belong to a run"):
        marker.extend(tmp_path, ["log-3"])
    assert marker.listed(tmp_path) == {*NAMES, "log-2"}


def test_a_file_system_without_links_will_do(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert marker.claim(tmp_path, NAMES, "lock")
    assert os.listdir(tmp_path) == [marker.NAME]


def test_a_marker_that_another_process_has_just_written_stays(tmp_path, monkeypatch):
    real = os.link

    def beaten(source, target):
        (tmp_path / marker.NAME).write_text("the other's")
        real(source, target)

    monkeypatch.setattr(os, "link", beaten)
    assert not marker.claim(tmp_path, NAMES, "lock")
    assert (tmp_path / marker.NAME).read_text() == "the other's"


@pytest.mark.parametrize(
    "text",
    [
        *("", "[1]", '{"format": "other", "files": []}'),
        *(
            json.dumps({"format": marker.FORMAT, "files": [name]})
            for name in ("", ".", "..", "/model", "a\0b", marker.NAME)
        ),
    ],
)
def test_a_file_that_is_not_a_marker_is_refused(tmp_path, text):
    (tmp_path / marker.NAME).write_text(text)
    for use in (marker.listed, lambda path: marker.claim(path, NAMES, "lock")):
        with pytest.raises(UsageError, match=f"{tmp_path}/run.json: expected a list of a run's"):
            use(tmp_path)
    assert (tmp_path / marker.NAME).read_text() == text
