"""The wall clock may jump, so it is used for time stamps and file ages only."""

import ast

import pytest

from tests.test_layers import SOURCES, within

ALLOWED = [
    "hogbatch.events",  # time stamps of events and reports
    "hogbatch.store.quarantine",  # time stamps of quarantined rows
    "hogbatch.run.setup",  # the name of a new run directory, and when the run began
    "hogbatch.run.processes",  # the time at which the coordinator started
    "hogbatch.run.platform",  # time stamps of events
    "hogbatch.cli.profile",  # the date of a description
    "hogbatch.workers.profile",  # the age of measurements
    "hogbatch.data.cache",  # the ages of files, which file systems measure by the wall clock
]
WALL = {
    "time": {
        *("time", "time_ns", "localtime", "gmtime", "ctime", "asctime", "strftime"),
        *("CLOCK_REALTIME", "CLOCK_TAI"),
    },
    "datetime": {"now", "utcnow", "today"},  # of datetime and date
}


def wall_clock_uses(source: str) -> list[str]:
    """Every expression in `source` that reads the wall clock, as "line: expression"."""
    if not any(module in source for module in WALL):
        return []  # most modules
    found, names = [], {}
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            first, *rest = ast.unparse(node).split(".")
            module, *inner = [*names.get(first, first).split("."), *rest]
            if inner and inner[-1] in WALL.get(module, ()):
                found.append(f"{node.lineno}: {ast.unparse(node)}")
    return found


def test_nothing_is_timed_by_the_wall_clock():
    uses = {
        module: wall_clock_uses(source)
        for module, source in SOURCES.items()
        if not within(module, ALLOWED)
    }
    assert {module: found for module, found in uses.items() if found} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import time\nuntil = time.time() + 3",
        "import time as t\nt.time_ns()",
        "from time import time\nnow = time",
        "from time import time as clock\nclock()",
        "from datetime import datetime\ndatetime.now()",
        "import datetime\ndatetime.datetime.utcnow()",
        "from datetime import date as day\nday.today()",
        "import time\ntime.clock_gettime(time.CLOCK_REALTIME)",
    ],
)
def test_uses_of_the_wall_clock_are_found(source):
    assert len(wall_clock_uses(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.monotonic() + time.perf_counter()",
        "from time import sleep\nsleep(1)",
        "from datetime import timedelta\ntimedelta(1)",
        "run.time = now = 3",
    ],
)
def test_other_clocks_are_accepted(source):
    assert wall_clock_uses(source) == []


def test_every_allowed_module_uses_it():
    users = [module for module in SOURCES if wall_clock_uses(SOURCES[module])]
    assert [each for each in ALLOWED if not any(within(user, [each]) for user in users)] == []
