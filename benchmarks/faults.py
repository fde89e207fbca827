"""What do faults cost: killed workers, killed coordinators, and a long life?

Each question is a command. All train the bundled sample with two workers of one thread.

    scripts/bench faults workers --times 200       a worker is killed: noticed when, made good when
    scripts/bench faults coordinators --times 50   the coordinator is killed and resumed, to the end
    scripts/bench faults target --seeds 5          a worker is killed every 2 s: time to the loss
    scripts/bench faults soak --seconds 600        memory and descriptors over many epochs

All print as they go, take --json FILE, and may be cut short: fewer --times, --seeds, --seconds.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import about

sys.path.append(str(Path(__file__).parents[1]))  # tests.support is there
from endurance import coordinators, soak, target, workers


def parse(given: Sequence[str] | None) -> argparse.Namespace:
    """The flags."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    questions = parser.add_subparsers(required=True, metavar="|".join(QUESTIONS), dest="question")
    parsers = {name: questions.add_parser(name) for name in QUESTIONS}
    for each in parsers.values():
        each.add_argument("--json", type=Path, metavar="FILE", help="write all results there")
    for name, times in (("workers", 200), ("coordinators", 50)):
        parsers[name].add_argument("--times", type=int, default=times, help="kills")
        parsers[name].add_argument("--seed", type=int, default=0, help="of the moments")
    parsers["coordinators"].add_argument("--epochs", type=int, default=60, help="of each run")
    add = parsers["target"].add_argument
    add("--seeds", type=int, default=5)
    add("--seconds", type=float, default=60.0, help="to go on killing, at most")
    add("--every", type=float, default=2.0, metavar="SECONDS", help="between two kills")
    add = parsers["soak"].add_argument
    add("--seconds", type=float, default=600.0)
    add("--warm-up", type=float, default=60.0, metavar="SECONDS", help="left out of the slopes")
    add("--flags", default="", help="more of `hogbatch train`, separated by blanks")
    return parser.parse_args(given)


QUESTIONS = {
    "workers": lambda given: workers.measure(given.times, given.seed),
    "coordinators": lambda given: coordinators.measure(given.times, given.seed, given.epochs),
    "target": lambda given: target.measure(given.seeds, given.seconds, given.every),
    "soak": lambda given: soak.measure(given.seconds, given.warm_up, tuple(given.flags.split())),
}


def main(given: Sequence[str] | None = None) -> None:
    """Measure and print."""
    arguments = parse(given)
    result = QUESTIONS[arguments.question](arguments)
    long = ("all", "runs", "pairs", "samples")
    print(json.dumps({k: v for k, v in result.items() if k not in long}, indent=2))
    about.write(arguments.json, [result])


if __name__ == "__main__":
    main()
