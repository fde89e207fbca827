"""`hogbatch simulate`: a forecast for given workers."""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Final

from hogbatch.cli.parser import Parser, Usage, add_link, link_of, up_to_one, whole
from hogbatch.config.arguments import ArgumentGroup, add_flags
from hogbatch.config.effect import changed, expect_effect, without_policy
from hogbatch.config.flags import Group, dashed
from hogbatch.config.sources import merge_sources
from hogbatch.config.train import TrainConfig
from hogbatch.errors import UsageError

MOST: Final = 10**12  # rows, parameters of a model, seeds
DEFAULT_S = 10.0  # of training, if no flag ends the run
ONE_SERVER = (  # flags about the workers of one server
    "policy",
    "alpha",
    "beta",
    "critical_batch",
    "min_utilization",
    "cpu_batch",
    "gpu_batch",
    "lease_ms",
)
SEVERAL_SERVERS = ("merge_rows",)
SETTINGS = (*ONE_SERVER, *SEVERAL_SERVERS, "epochs", "max_seconds")

SIMULATE: Final = Usage(
    "simulate", "[options]", "Simulate a run with workers of given speeds, without the hardware."
)


def simulate(arguments: Sequence[str]) -> int:
    """`hogbatch simulate`."""
    options = _simulate_parser().read(arguments)
    settings = {name: value for name, value in vars(options).items() if name in SETTINGS}
    config = merge_sources({"data": "simulated", **settings})
    _print_forecast(config, options)
    return 0


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
        "--rows",
        type=whole(1, MOST),
        default="1000000",
        metavar="N",
        help="rows per epoch (default: %(default)s)",
    )
    simulated.add_argument(
        "--seed",
        type=whole(0, MOST),
        default="0",
        metavar="N",
        help="random seed (default: %(default)s)",
    )
    groups = add_flags(parser, SETTINGS)
    _add_servers(groups[Group.SEVERAL_SERVERS])
    output = parser.add_argument_group(Group.OUTPUT.value)
    output.add_argument("--json", action="store_true", help="all results as JSON")
    return parser


def _add_servers(group: ArgumentGroup) -> None:
    group.add_argument(
        "--parameters",
        type=whole(1, MOST),
        metavar="N",
        default="1000000",
        help="parameters of the model that servers merge (default: %(default)s)",
    )
    add_link(group)
    group.add_argument(
        "--share",
        type=up_to_one,
        metavar="FRACTION",
        default="0.3",
        help="largest fraction of the time in which a merge is under way; merges wait for it, as "
        "in a run (default: %(default)s)",
    )


def _print_forecast(config: TrainConfig, options: Namespace) -> None:
    import msgspec

    from hogbatch.cluster.decisions.settings import merge_settings
    from hogbatch.simulate.forecast import forecast, table
    from hogbatch.simulate.speed import parse_workers

    if config.epochs is None and config.max_seconds is None:
        config = replace(config, max_seconds=DEFAULT_S)
    workers = parse_workers(options.workers)
    servers = workers[0][1].device == "server"
    _check_flags(config, servers=servers)
    rows, seed, link = options.rows, options.seed, link_of(options.gbit, options.latency_us)
    merging = merge_settings(rows, options.parameters, config.merge_rows, share=options.share)
    found = forecast(config, workers, rows, seed, (merging, link) if servers else None)
    if options.json:
        print(msgspec.json.encode(asdict(found)).decode())
    else:
        print(*table(found), sep="\n")


def _check_flags(config: TrainConfig, *, servers: bool) -> None:
    """UsageError if a flag was changed that has no effect on these workers."""
    if names := changed(config, ONE_SERVER if servers else SEVERAL_SERVERS):
        kind = "servers" if servers else "workers of one server"
        verb = "has" if len(names) == 1 else "have"
        flags = ", ".join(f"--{dashed(name)}" for name in names)
        raise UsageError(f"{flags} {verb} no meaning with {kind} in --workers")
    expect_effect(without_policy(config))
