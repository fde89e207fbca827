"""Checks of the directories for compiled kernels and parsed data."""

from hogbatch.doctor.facts import CacheFolder, Facts, Unknown
from hogbatch.doctor.verdict import Verdict, ok, unknown, warn
from hogbatch.machine.budget import byte_size


def check_kernels(facts: Facts) -> Verdict:
    """Whether compiled kernels are kept, and whether there are some."""
    note, folder = facts.caches.note, facts.caches.kernels
    for fact in (note, folder):
        if isinstance(fact, Unknown):
            return warn(fact.reason, "every process of a run compiles all kernels")
    assert not isinstance(note, Unknown) and not isinstance(folder, Unknown)
    if note:
        return warn(
            _kernels(folder), f"kernels may have to be compiled again after a restart; {note}"
        )
    if not folder.writable and not folder.files:
        return warn(
            f"{folder.path} is not writable",
            "every process of a run compiles all kernels; set HOGBATCH_CACHE to a writable "
            "directory",
        )
    if folder.free < folder.min_free and not folder.files:
        return warn(
            _space(folder),
            "kernels cannot be kept, so every process of a run compiles them; free some space, or "
            "set HOGBATCH_CACHE to a directory on another disk",
        )
    if not folder.files:
        return ok(_kernels(folder), "the first run compiles them, which takes up to a minute")
    return ok(_kernels(folder))


def check_data(facts: Facts) -> Verdict:
    """Whether parsed text files are kept."""
    folder = facts.caches.data
    if isinstance(folder, Unknown):
        return unknown(folder)
    if folder.free < folder.min_free:
        return warn(
            _space(folder),
            "text files are not kept in binary form, so each run parses them again; free some "
            "space, or use --data-cache with a directory on another disk",
        )
    count = f"{folder.files} file" + "s" * (folder.files != 1)
    return ok(f"{folder.path}: {count}, {byte_size(folder.size)}")


def _kernels(folder: CacheFolder) -> str:
    size = f"compiled kernels, {byte_size(folder.size)}" if folder.files else "no compiled kernels"
    return f"{folder.path}: {size}"


def _space(folder: CacheFolder) -> str:
    return f"{folder.path}: {byte_size(folder.free)} free on its disk"
