"""Simulate runs with random faults; fail at the first one that violates an invariant."""

import sys
from argparse import ArgumentParser

from tests.simulation.scenario import ScenarioFailed, draw_scenario, run_scenario

PROGRESS = 50  # seeds between two progress lines


def main() -> None:
    parser = ArgumentParser(prog="scripts/simulate", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seed", type=int, metavar="N", help="one run; prints its events")
    what.add_argument("--seeds", metavar="FIRST:STOP[:STEP]", help="one run for each of a range")
    options = parser.parse_args()
    try:
        if options.seed is not None:
            show(options.seed)
        else:
            run_all(range(*map(int, options.seeds.split(":"))))
    except ScenarioFailed as error:
        sys.exit(str(error))


def show(seed: int) -> None:
    scenario = draw_scenario(seed)
    print(
        f"{len(scenario.workers)} workers, {scenario.plan.train_rows} rows, {scenario.conditions}"
    )
    world = run_scenario(scenario)
    for at, what in world.events:
        print(f"{at:10.3f} s  {what}")
    if world.finish is not None:
        print(f"{world.queue.now:10.3f} s  {world.finish.status} {world.finish.reason or ''}")


def run_all(seeds: range) -> None:
    for count, seed in enumerate(seeds, 1):
        run_scenario(draw_scenario(seed))
        if count % PROGRESS == 0:
            print(f"\r{count} runs, last seed {seed} ", end="", file=sys.stderr, flush=True)
    print(f"\r{len(seeds)} runs passed all checks", file=sys.stderr)


if __name__ == "__main__":
    main()
