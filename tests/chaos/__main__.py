"""Injects faults into a run for some time: python -m tests.chaos [SECONDS].

With --cluster, it ends several runs on two servers instead, each in a random way.
"""

import argparse
import secrets
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.endings import end_runs
from tests.chaos.plan import KINDS, plan
from tests.chaos.sabotage import Sabotage
from tests.support.fault_injection import Job

# A network whose checkpoints are larger than what a run logs in minutes; it reaches TARGET soon.
FLAGS = ("--hidden", "256,256", "--epochs", 1_000_000, "--lease-ms", 20)
FLAGS += ("--checkpoint-seconds", 0.5)
TARGET = 0.34


def parse(given: Sequence[str] | None) -> argparse.Namespace:
    """The flags."""
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    add = parser.add_argument
    add("seconds", nargs="?", type=float, default=60.0, help="to go on breaking (default: 60)")
    add("--seed", type=int, default=secrets.randbelow(1_000_000), help="of the plan")
    add("--every", type=float, default=1.0, metavar="SECONDS", help="between two acts, on average")
    add("--only", default=",".join(KINDS), metavar="KINDS", help=", ".join(KINDS))
    add("--cluster", choices=("local", "ray"), help="end runs on two servers")
    add("--times", type=int, default=20, help="with --cluster: number of runs (default: 20)")
    arguments = parser.parse_args(given)
    if unknown := set(arguments.only.split(",")) - set(KINDS):
        parser.error(f"--only: unknown {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    return arguments


def main(given: Sequence[str] | None = None) -> int:
    """Carry the plan of a seed out; 0 if the run kept its promises, else 1."""
    arguments = parse(given)
    if arguments.cluster:
        print(f"seed {arguments.seed}, {arguments.times} runs", flush=True)
        return report(end_runs(arguments.cluster, arguments.times, arguments.seed))
    kinds = tuple(arguments.only.split(","))
    print(f"seed {arguments.seed}, {arguments.seconds:g} s", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        sabotage = Sabotage(Job(Path(folder)), *FLAGS, say=lambda line: print(line, flush=True))
        try:
            sabotage.begin()
            sabotage.carry_out(plan(arguments.seed, arguments.seconds, arguments.every, kinds))
            sabotage.end(TARGET)
        except AssertionError as error:  # something was waited for in vain
            sabotage.faults.append(str(error))
        finally:
            print(sabotage.account())
            sabotage.close()
    return report(sabotage.faults)


def report(faults: Sequence[str]) -> int:
    """Print what was found; return the exit code."""
    for fault in faults:
        print(f"FAULT: {fault}")
    print("a promise was broken" if faults else "all promises were kept")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
