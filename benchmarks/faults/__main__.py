"""The cost of faults: killed workers, killed coordinators, and long runs.

Each question is a command. All train the bundled sample with two workers of one thread each.

    scripts/bench faults workers --times 200       time until the rows of a killed worker are done
    scripts/bench faults coordinators --times 50   result of runs that are killed and resumed
    scripts/bench faults target --seeds 5          time to a test loss, one worker killed every 2 s
    scripts/bench faults soak --seconds 600        memory and descriptors over many epochs

All print their progress and a JSON summary, accept --json FILE, and can be shortened with fewer
--times, --seeds or --seconds.
"""

import argparse
import json
from collections.abc import Sequence
from functools import partial

from benchmarks.common import arguments, report
from benchmarks.faults import coordinators, soak, target, workers

QUESTIONS = {
    "workers": lambda options: workers.measure(options.times, options.seed),
    "coordinators": lambda options: coordinators.measure(
        options.times, options.seed, options.epochs
    ),
    "target": lambda options: target.measure(options.seeds, options.seconds, options.every),
    "soak": lambda options: soak.measure(
        options.seconds, options.warm_up, tuple(options.flags.split())
    ),
}
LONG = ("all", "runs", "pairs", "samples")  # items that are written, but not printed


def parse(flags: Sequence[str] | None) -> argparse.Namespace:
    """The flags."""
    parser = arguments.parser("faults", __doc__)
    questions = parser.add_subparsers(required=True, metavar="|".join(QUESTIONS), dest="question")
    parsers = {name: questions.add_parser(name) for name in QUESTIONS}
    for each in parsers.values():
        arguments.add_json(each)
    for name, times in (("workers", 200), ("coordinators", 50)):
        arguments.add_number(parsers[name], "--times", times, "number of kills")
        text = "random seed of the moments (default: 0)"
        parsers[name].add_argument("--seed", type=int, default=0, help=text)
    arguments.add_number(parsers["coordinators"], "--epochs", 60, "epochs of each run")
    number = partial(arguments.add_number, parsers["target"])
    number("--seeds", 5, "number of seeds")
    number("--seconds", 60.0, "maximum duration of the kills")
    number("--every", 2.0, "interval between kills", "SECONDS")
    number = partial(arguments.add_number, parsers["soak"])
    number("--seconds", 600.0, "duration")
    number("--warm-up", 60.0, "time excluded from the slopes", "SECONDS")
    text = "additional flags of `hogbatch train`, separated by spaces"
    parsers["soak"].add_argument("--flags", default="", help=text)
    return parser.parse_args(flags)


def main(flags: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = parse(flags)
    result = QUESTIONS[options.question](options)
    print(json.dumps({k: v for k, v in result.items() if k not in LONG}, indent=2))
    report.write(options.json, [result])


if __name__ == "__main__":
    main()
