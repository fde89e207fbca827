"""`hogbatch plan`: how many servers a training problem allows."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hogbatch.commands.numbers import positive
from hogbatch.commands.parser import Parser, Usage
from hogbatch.config.arguments import ArgumentGroup
from hogbatch.config.flags import Group
from hogbatch.errors import UsageError

if TYPE_CHECKING:
    from hogbatch.cluster.link import ServerLink

PLAN: Final = Usage(
    "plan",
    "RUN_DIR [options]",
    "Predict how long merges between several servers would take, from a run on one server.",
)
MOST: Final = 4096  # servers


def plan(arguments: Sequence[str]) -> int:
    """`hogbatch plan`."""
    parser = Parser(PLAN)
    parser.epilog = (
        "Nothing is sent: the times are predicted. To train on several servers: --cluster of train."
    )
    parser.add_argument(
        "run_dir", metavar="RUN_DIR", type=Path, help="run that has ended, also of a rehearsal"
    )
    servers = parser.add_argument_group("servers")
    servers.add_argument(
        "--servers",
        metavar="N,...",
        default="2,4,8,16,32,64,100",
        help="numbers of servers to plan for (default: %(default)s)",
    )
    add_link(servers)
    servers.add_argument(
        "--merges-per-epoch",
        metavar="X",
        default="5",
        help="merges while all servers together train on the data once (default: %(default)s)",
    )
    servers.add_argument(
        "--share",
        metavar="FRACTION",
        default="0.1",
        help="wanted fraction of the time for merges (default: %(default)s)",
    )
    output = parser.add_argument_group(Group.OUTPUT.value)
    output.add_argument("--json", action="store_true", help="the plan as JSON")
    given = parser.read(arguments)
    counts = _counts(given.servers)
    merges = positive("--merges-per-epoch", given.merges_per_epoch)
    link, share = link_of(given.gbit, given.latency_us), positive("--share", given.share)
    from hogbatch.cluster import text
    from hogbatch.cluster.estimate import predict
    from hogbatch.status.training_task import task_of

    found = predict(task_of(given.run_dir, merges), link, share, counts)
    if given.json:
        print(json.dumps(text.fields(found), indent=2))
    else:
        print(*text.lines(found), sep="\n")
    return 0


def add_link(group: ArgumentGroup) -> None:
    """Add the flags for the link between two servers."""
    group.add_argument(
        "--gbit",
        metavar="X",
        default="10",
        help="speed of a link between two servers in Gbit/s (default: %(default)s)",
    )
    group.add_argument(
        "--latency-us",
        metavar="US",
        default="50",
        help="latency of a transfer between two servers in microseconds (default: %(default)s)",
    )


def link_of(gbit: str, latency_us: str) -> "ServerLink":
    """The link that the flags describe."""
    from hogbatch.cluster.link import ServerLink

    speed, latency = positive("--gbit", gbit), positive("--latency-us", latency_us)
    return ServerLink(1e-6 * latency, 1e9 / 8 * speed)


def _counts(given: str) -> list[int]:
    """The numbers of servers."""
    try:
        counts = [int(part) for part in given.split(",")]
    except ValueError:
        counts = []
    if not counts or not all(2 <= count <= MOST for count in counts):
        raise UsageError(
            f"--servers: expected whole numbers from 2 to {MOST} as in 2,8,100; got {given!r}"
        )
    return counts
