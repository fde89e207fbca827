"""The cache directory, and its replacement where the usual one is not writable."""

import os
import tempfile
from pathlib import Path

import pytest

from hogbatch.errors import UsageError
from hogbatch.machine import cachedir
from hogbatch.machine.cachedir import cache_root, exposure, find_cache_root, make_directory

VARIABLES = ("HOGBATCH_CACHE", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME")


@pytest.fixture
def homeless(tmp_path, monkeypatch):
    """An environment whose home directory is a file; returns the temporary directory."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home").touch()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


def test_the_first_variable_that_is_set_determines_the_directory(tmp_path, monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_root() == tmp_path / "home/.cache/hogbatch"
    for name, place in zip(reversed(VARIABLES), ("xdg", "numba", "own"), strict=True):
        monkeypatch.setenv(name, str(tmp_path / place))
        assert cache_root() == tmp_path / (place if place == "own" else f"{place}/hogbatch")
    assert find_cache_root().note is None
    assert list(tmp_path.iterdir()) == []


def test_where_it_cannot_be_written_a_private_temporary_one_takes_its_place(homeless):
    path, note = find_cache_root()
    assert path.parent == homeless and path.name.endswith(f"-{os.geteuid()}")
    assert path.stat().st_mode & 0o777 == 0o700
    assert str(homeless.parent / "home") in note and str(path) in note
    assert find_cache_root() == (path, note)  # the same for other processes and later runs


def test_without_a_home_directory_a_temporary_one_is_used(homeless, monkeypatch):
    def unknown():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    assert find_cache_root().note.startswith("there is no home directory: ")
    assert cache_root().parent == homeless


@pytest.mark.parametrize("link", [False, True])
def test_one_that_others_may_write_or_a_link_in_its_place_is_refused(homeless, tmp_path, link):
    path = cache_root()
    if link:
        path.rmdir()
        path.symlink_to(tmp_path)
    else:
        path.chmod(0o770)
    found = "got lrwxrwxrwx of user" if link else r"with mode 0700 at .*; got drwxrwx--- of user"
    with pytest.raises(UsageError, match=found):
        cache_root()


def test_one_of_another_user_is_refused(homeless, monkeypatch):
    path = cache_root()
    monkeypatch.setattr(cachedir.os, "geteuid", lambda: os.getuid() + 1)
    path.rename(path.with_name(path.name.replace(f"-{os.getuid()}", f"-{os.getuid() + 1}")))
    with pytest.raises(UsageError, match=f"of user {os.getuid()}: remove it, or set HOGBATCH_CA"):
        cache_root()


def test_without_any_usable_directory_there_is_one_sentence(homeless):
    homeless.rmdir()
    with pytest.raises(UsageError, match=r"got none, not even a temporary one .*HOGBATCH_CACHE"):
        cache_root()


@pytest.mark.parametrize(
    ("changed", "mode", "owner", "expected"),
    [
        ("", 0o700, None, None),
        ("", 0o755, None, None),
        ("", 0o775, None, "other users can write to {}"),
        ("", 0o1777, None, "other users can write to {}"),
        ("above", 0o1777, None, None),  # as /tmp
        ("above", 0o777, None, "other users can write to {}"),
        ("above", 0o770, None, "other users can write to {}"),
        ("", 0o700, 65534, "{} belongs to another user (65534)"),
        ("above", 0o755, 65534, "{} belongs to another user (65534)"),
    ],
)
def test_who_can_place_files_in_a_cache(tmp_path, changed, mode, owner, expected):
    path = tmp_path / "above" / "cache"
    path.mkdir(parents=True)
    directory = path.parent if changed else path
    directory.chmod(mode)
    if owner is not None:
        if os.geteuid() != 0:
            pytest.skip("only root can give a directory to another user")
        os.chown(directory, owner, owner)
    found = exposure(path)
    assert found is None if expected is None else found.startswith(expected.format(directory))


def test_a_link_to_a_directory_of_others_is_refused(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    (tmp_path / "cache").symlink_to(tmp_path / "shared")
    assert f"other users can write to {tmp_path / 'shared'}" in exposure(tmp_path / "cache")


def test_a_cache_that_others_can_write_is_not_used(homeless, tmp_path, monkeypatch):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setenv("HOGBATCH_CACHE", str(shared))
    path, note = find_cache_root()
    assert path.parent == homeless and note.startswith(f"other users can write to {shared}")
    monkeypatch.setenv("HOGBATCH_CACHE", str(shared / "own"))
    assert find_cache_root().path == shared / "own"


def test_directories_are_created_for_this_user_only(tmp_path):
    before = os.umask(0)
    try:
        make_directory(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    modes = [path.stat().st_mode & 0o777 for path in (tmp_path / "a", tmp_path / "a" / "b")]
    assert modes == [0o700, 0o700]
