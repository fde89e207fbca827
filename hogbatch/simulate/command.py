"""`hogbatch simulate`: a forecast for given workers, or runs with random faults."""

import sys
from collections.abc import Iterable
from dataclasses import asdict, fields, replace

import msgspec

from hogbatch.config.train import TrainConfig
from hogbatch.errors import UsageError
from hogbatch.simulate.forecast import forecast, table
from hogbatch.simulate.merge_forecast import SimulatedCluster
from hogbatch.simulate.scenario import draw_scenario, run_scenario
from hogbatch.simulate.speed import parse_workers

DEFAULT_S = 10.0  # of training, if no flag ends the run
PROGRESS = 50  # seeds between two progress lines
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
SEVERAL_SERVERS = ("merge_rows", "server_merge")


def execute(
    config: TrainConfig,
    cluster: SimulatedCluster,
    *,
    workers: str,
    rows: str,
    seed: str,
    json: bool,
    faults: bool,
    seeds: str | None,
) -> int:
    """Simulate according to the flags and print the result; return the exit code.

    `cluster` is used if the workers are servers.

    UsageError for an invalid value.
    """
    if seeds is not None:
        if not faults:
            raise UsageError("--seeds requires --faults; without it, use --seed")
        run_all(_seeds(seeds))
    elif faults:
        show_scenario(_whole("seed", seed, 0))
    else:
        if config.epochs is None and config.max_seconds is None:
            config = replace(config, max_seconds=DEFAULT_S)
        parsed = parse_workers(workers)
        servers = parsed[0][1].device == "server"
        _check_flags(config, cluster, servers=servers)
        numbers = _whole("rows", rows, 1), _whole("seed", seed, 0)
        result = forecast(config, parsed, *numbers, cluster if servers else None)
        text = msgspec.json.encode(asdict(result)).decode() if json else "\n".join(table(result))
        print(text)
    return 0


def _check_flags(config: TrainConfig, cluster: SimulatedCluster, *, servers: bool) -> None:
    """UsageError if a flag was changed that has no effect on these workers."""
    usual = {each.name: each.default for each in fields(TrainConfig)}
    changed = [
        "--" + name.replace("_", "-")
        for name in (ONE_SERVER if servers else SEVERAL_SERVERS)
        if getattr(config, name) != usual[name]
    ]
    if cluster.lost and not servers:
        changed.append("--lost")
    if changed:
        kind = "servers" if servers else "workers of one server"
        verb = "has" if len(changed) == 1 else "have"
        raise UsageError(f"{', '.join(changed)} {verb} no meaning with {kind} in --workers")


def show_scenario(seed: int) -> None:
    """Run one scenario and print its events; :class:`ScenarioFailed` if it fails."""
    scenario = draw_scenario(seed)
    print(f"{len(scenario.speeds)} workers, {scenario.plan.train_rows} rows, {scenario.conditions}")
    world = run_scenario(scenario)
    for at, what in world.events:
        print(f"{at:10.3f} s  {what}")
    if world.finish is not None:
        reason = world.finish.reason or ""
        print(f"{world.queue.now:10.3f} s  {world.finish.status} {reason}")


def run_all(seeds: Iterable[int]) -> None:
    """Run the scenarios of `seeds` in turn; :class:`ScenarioFailed` at the first that fails."""
    count = 0
    for count, seed in enumerate(seeds, 1):
        run_scenario(draw_scenario(seed))
        if count % PROGRESS == 0:
            print(f"\r{count} runs, last seed {seed} ", end="", file=sys.stderr, flush=True)
    print(f"\r{count} runs passed all checks", file=sys.stderr)


def _seeds(text: str) -> range:
    try:
        return range(*map(int, text.split(":"))) if ":" in text else range(int(text))
    except (ValueError, TypeError):
        raise UsageError(f"seeds: expected FIRST:STOP or FIRST:STOP:STEP; got {text!r}") from None


def _whole(name: str, text: str, minimum: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise UsageError(f"{name}: expected a whole number; got {text!r}") from None
    if value < minimum:
        raise UsageError(f"{name} must be {minimum} or more; got {value}")
    return value
