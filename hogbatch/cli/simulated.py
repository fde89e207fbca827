"""`hogbatch simulate` and `rehearse`, which run without the hardware, and `profile`."""

import os
import sys
from collections.abc import Sequence
from typing import Final

from hogbatch.cli.cluster import add_link, link_of
from hogbatch.cli.numbers import up_to_one, whole
from hogbatch.cli.parser import Parser, Usage, add_config
from hogbatch.config.arguments import ArgumentGroup, add_flags
from hogbatch.config.flags import Group
from hogbatch.config.sources import merge_sources
from hogbatch.config.train import FLAGS

# Flags of processes, sockets, checkpoints, live views and clusters: a rehearsal has none.
NOT_REHEARSED: Final = (
    "pin",
    "listen",
    "insecure",
    "checkpoint_seconds",
    "resume",
    "deterministic",
    "plain",
    "cluster",
    "per_server",
    "data_copies",
    "transfer",
    "robust",
    "plane",
)
MOST_PARAMETERS: Final = 10**12  # of a simulated model
MOST_LOST: Final = 10_000  # servers

SIMULATE: Final = Usage(
    "simulate", "[options]", "Simulate a run with workers of given speeds, without the hardware."
)
REHEARSE: Final = Usage(
    "rehearse",
    "[DATA] --server NAME|TOML [options]",
    "Train on a simulated server: real gradients, simulated times.",
)
PROFILE: Final = Usage(
    "profile", "[options]", "Measure this machine and write its description, for rehearsals."
)


def simulate(arguments: Sequence[str]) -> int:
    """`hogbatch simulate`."""
    options = vars(_simulate_parser().read(arguments))
    own = {
        name: options.pop(name) for name in ("workers", "rows", "seed", "json", "faults", "seeds")
    }
    parameters, share, lost = (options.pop(name) for name in ("parameters", "share", "lost"))
    link = link_of(options.pop("gbit"), options.pop("latency_us"))
    config = merge_sources({"data": "simulated", **options})
    from hogbatch.simulate.command import execute
    from hogbatch.simulate.merge_forecast import SimulatedCluster

    cluster = SimulatedCluster(
        whole("--parameters", parameters, 1, MOST_PARAMETERS),
        link,
        up_to_one("--share", share),
        config.merge_rows,
        config.server_merge,
        whole("--lost", lost, 0, MOST_LOST),
    )
    return execute(config, cluster, **own)


def _simulate_parser() -> Parser:
    parser = Parser(SIMULATE)
    simulated = parser.add_argument_group("simulated run")
    simulated.add_argument(
        "--workers",
        metavar="LIST",
        default="cpu:4x2000rows/s",
        help="speeds of the workers: cpu:16x2000rows/s for 16 workers of 2000 rows/s each; with "
        "@half=256, batches of 256 rows run at half of that speed; server:100x50000rows/s for 100 "
        "servers (default: %(default)s)",
    )
    simulated.add_argument(
        "--rows", default="1000000", metavar="N", help="rows per epoch (default: %(default)s)"
    )
    simulated.add_argument(
        "--seed", default="0", metavar="N", help="random seed (default: %(default)s)"
    )
    flags = ("policy", "alpha", "beta", "critical_batch", "min_utilization")
    limits = ("cpu_batch", "gpu_batch", "lease_ms", "epochs", "max_seconds")
    groups = add_flags(parser, [*flags, *limits, "merge_rows", "server_merge"])
    _add_servers(groups[Group.SEVERAL_SERVERS])
    faults = parser.add_argument_group("fault injection")
    faults.add_argument(
        "--faults",
        action="store_true",
        help="instead, a random run with faults, drawn from --seed; fails if a guarantee is "
        "violated",
    )
    faults.add_argument(
        "--seeds",
        metavar="FIRST:STOP[:STEP]",
        help="a range of seeds for --faults, one run each; stops at the first failure",
    )
    output = parser.add_argument_group(Group.OUTPUT.value)
    output.add_argument("--json", action="store_true", help="all results as JSON")
    return parser


def _add_servers(group: ArgumentGroup) -> None:
    """Add the flags of simulated servers."""
    group.add_argument(
        "--parameters",
        metavar="N",
        default="1000000",
        help="parameters of the model that servers merge (default: %(default)s)",
    )
    add_link(group)
    group.add_argument(
        "--share",
        metavar="FRACTION",
        default="0.3",
        help="largest fraction of the time in which a merge is under way; merges wait for it, as "
        "in a run (default: %(default)s)",
    )
    group.add_argument(
        "--lost",
        metavar="N",
        default="0",
        help="servers that die at random times and do not come back (default: %(default)s)",
    )


def rehearse(arguments: Sequence[str]) -> int:
    """`hogbatch rehearse`."""
    from hogbatch.simulate.hardware.description import bundled_names

    parser = Parser(REHEARSE)
    rehearsed = parser.add_argument_group("simulated server")
    rehearsed.add_argument(
        "--server",
        metavar="NAME|TOML",
        required=True,
        help=f"server to simulate: {', '.join(bundled_names())}, or a TOML file as "
        "written by 'hogbatch profile'",
    )
    rehearsed.add_argument(
        "--interleave",
        choices=("layer", "batch"),
        default="layer",
        help="whether a CPU thread reads and writes each layer when it computes it, or reads the "
        "model when its batch begins and writes it when it ends (default: %(default)s)",
    )
    cluster = parser.add_argument_group("link between simulated servers")
    add_link(cluster)
    add_config(parser)
    groups = add_flags(parser, [name for name in FLAGS if name not in NOT_REHEARSED])
    groups[Group.OUTPUT].add_argument(
        "--json", action="store_true", help="the summary as JSON; progress on standard error"
    )
    options = vars(parser.read(arguments))
    own = {name: options.pop(name) for name in ("server", "interleave", "json")}
    link = link_of(options.pop("gbit"), options.pop("latency_us"))
    config = merge_sources(options, options.pop("config"))
    sys.path.append("")  # --policy module:Class may name a module in the working directory
    from hogbatch.simulate.rehearsal.command import execute

    return execute(config, **own, link=link)


def profile(arguments: Sequence[str]) -> int:
    """`hogbatch profile`."""
    parser = Parser(PROFILE)
    parser.add_argument(
        "--output", metavar="FILE", help="TOML file to write (default: standard output)"
    )
    parser.add_argument(
        "--name",
        metavar="NAME",
        default="this-machine",
        help="name of the server (default: %(default)s)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="few measurements, to test the command: the figures are inexact",
    )
    options = parser.read(arguments)
    for library in ("OPENBLAS", "OMP", "MKL"):  # as in workers; effective before NumPy is imported
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    from hogbatch.simulate.profile.command import execute

    return execute(options.output, options.name, quick=options.quick)
