"""`hogbatch simulate`: a forecast for given workers."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Final

from hogbatch.cli.parser import Parser, whole
from hogbatch.config.arguments import add_flags
from hogbatch.config.effect import POLICY_OF, expect_effect, without_policy
from hogbatch.config.sources import merge_sources

MOST: Final = 10**12  # rows, seeds
DEFAULT_S = 10.0  # of training, if no flag ends the run
SETTINGS = (
    *("policy", *POLICY_OF, "min_utilization"),
    *("cpu_batch", "gpu_batch", "lease_ms", "epochs", "max_seconds"),
)


def simulate(arguments: Sequence[str]) -> int:
    """Simulate a run with workers of given speeds, without the hardware."""
    options = _simulate_parser().read(arguments)
    settings = {name: value for name, value in vars(options).items() if name in SETTINGS}
    config = merge_sources({"data": "simulated", **settings})
    import msgspec

    from hogbatch.simulate.forecast import forecast, table
    from hogbatch.simulate.speed import parse_workers

    if config.epochs is None and config.max_seconds is None:
        config = replace(config, max_seconds=DEFAULT_S)
    expect_effect(without_policy(config))
    found = forecast(config, parse_workers(options.workers), options.rows, options.seed)
    if options.json:
        print(msgspec.json.encode(asdict(found)).decode())
    else:
        print(*table(found), sep="\n")
    return 0


def _simulate_parser() -> Parser:
    parser = Parser(simulate, "[options]")
    simulated = parser.add_argument_group("simulated run")
    simulated.add_argument(
        "--workers",
        metavar="LIST",
        default="cpu:4x2000rows/s",
        help="speeds of the workers: cpu:16x2000rows/s for 16 workers of 2000 rows/s each; with "
        "@half=256, batches of 256 rows run at half of that speed (default: %(default)s)",
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
    add_flags(parser, SETTINGS)
    parser.output.add_argument("--json", action="store_true", help="all results as JSON")
    return parser
