"""`hogbatch simulate`: a forecast for given workers, or runs full of faults."""

import sys
from collections.abc import Iterable
from dataclasses import asdict, replace

import msgspec

from hogbatch.config.train import TrainConfig
from hogbatch.errors import UsageError
from hogbatch.simulate.forecast import forecast, table
from hogbatch.simulate.scenario import draw, play
from hogbatch.simulate.speed import parse_workers

USUAL_S = 10.0  # of training, where nothing ends the run
PROGRESS = 50  # seeds between two lines


def execute(
    config: TrainConfig,
    *,
    workers: str,
    rows: str,
    seed: str,
    json: bool,
    faults: bool,
    seeds: str | None,
) -> int:
    """Do what the flags say and print it; return the exit code. UsageError for a bad value."""
    if seeds is not None:
        if not faults:
            raise UsageError("--seeds is for --faults; add that, or give one --seed")
        play_all(_seeds(seeds))
    elif faults:
        tell(_whole("seed", seed, 0))
    else:
        if config.epochs is None and config.max_seconds is None:
            config = replace(config, max_seconds=USUAL_S)
        crew = parse_workers(workers)
        seen = forecast(config, crew, _whole("rows", rows, 1), _whole("seed", seed, 0))
        text = msgspec.json.encode(asdict(seen)).decode() if json else "\n".join(table(seen))
        print(text)
    return 0


def tell(seed: int) -> None:
    """Play one scenario, and say what was done to whom; :class:`ScenarioFailed` if it fails."""
    scenario = draw(seed)
    print(f"{len(scenario.crew)} workers, {scenario.plan.train_rows} rows, {scenario.conditions}")
    world = play(scenario)
    for at, what in world.story:
        print(f"{at:10.3f} s  {what}")
    if world.finish is not None:
        print(f"{world.queue.now:10.3f} s  {world.finish.status} {world.finish.reason}")


def play_all(seeds: Iterable[int]) -> None:
    """Play one scenario after the other; :class:`ScenarioFailed` at the first that fails."""
    played = 0
    for played, seed in enumerate(seeds, 1):
        play(draw(seed))
        if played % PROGRESS == 0:
            print(f"\r{played} runs, the last of seed {seed} ", end="", file=sys.stderr, flush=True)
    print(f"\r{played} runs kept all promises", file=sys.stderr)


def _seeds(text: str) -> range:
    try:
        return range(*map(int, text.split(":"))) if ":" in text else range(int(text))
    except (ValueError, TypeError):
        raise UsageError(f"seeds: expected FIRST:STOP or FIRST:STOP:STEP; got {text!r}") from None


def _whole(name: str, text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise UsageError(f"{name}: expected a whole number; got {text!r}") from None
    if value < least:
        raise UsageError(f"{name} must be {least} or more; got {value}")
    return value
