from benchmarks.common import machine


def test_directories_are_removed_from_flags_only():
    command = "scripts/bench extreme --data=/a/b/c.xmc --test ../d/e.xmc"
    shown = "scripts/bench extreme --data=DIR/c.xmc --test DIR/e.xmc"
    assert machine.without_directories(command) == shown


def test_versions_are_those_of_installed_packages():
    assert list(machine.versions("numpy", "no-such-package")) == ["numpy"]
