"""The wall clock may jump: it stamps what people read, and nothing else goes by it."""

import ast

import pytest

from tests.test_layers import SOURCES, within

MAY_LOOK = [
    "hogbatch.telemetry",  # events and reports
    "hogbatch.store.quarantine",  # when rows were, for people
    "hogbatch.run.training",  # the name of a run directory, and since when it is held
    "hogbatch.data.cache",  # the ages of files, which file systems keep by the wall clock
]
WALL = {
    "time": {
        *("time", "time_ns", "localtime", "gmtime", "ctime", "asctime", "strftime"),
        *("CLOCK_REALTIME", "CLOCK_TAI"),
    },
    "datetime": {"now", "utcnow", "today"},  # of datetime and date
}


def looks(source: str) -> list[str]:
    """Every place in `source` that reads the wall clock, as "line: what"."""
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


@pytest.mark.parametrize("module", SOURCES)
def test_nothing_is_timed_by_the_wall_clock(module):
    assert within(module, MAY_LOOK) or looks(SOURCES[module]) == []


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
def test_a_look_at_the_wall_clock_is_found(source):
    assert len(looks(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.monotonic() + time.perf_counter()",
        "from time import sleep\nsleep(1)",
        "from datetime import timedelta\ntimedelta(1)",
        "run.time = now = 3",
    ],
)
def test_other_clocks_pass(source):
    assert looks(source) == []


@pytest.mark.parametrize("module", MAY_LOOK)
def test_who_may_look_does(module):
    assert any(looks(SOURCES[name]) for name in SOURCES if within(name, [module]))
