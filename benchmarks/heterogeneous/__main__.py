"""Are CPU and GPU together faster than the better of the two alone?

Trains each data set through the command line with CPU workers only, with the GPU only, with both
under `--policy hogbatch` and under `--policy adaptive`, and with PyTorch on that GPU; in turn, once
per seed.

    scripts/bench heterogeneous DIR --seeds 3 --json out.json
    scripts/bench heterogeneous hogbatch/data/samples --only a9a --gpu host --max-seconds 3

DIR holds w8a.svm.gz, covtype.csv.gz, delicious-{train,test}.xmc.gz, imdb-{train,test}.svm.gz,
citeulike-{train,test}.xmc.gz. w8a-paper and covtype-paper use the networks of Ma & Rusu 2020
(covtype with all seven classes); a9a is the bundled sample, for a trial run. The loss of citeulike
is 1 - P@1, and its runs of hogbatch last until --max-seconds, with 120 evaluations.

PyTorch uses the best setting of a search over its grid on a GPU (--tune, kept for later runs), or
without one a setting that was chosen on a CPU (common/cases.py); "setting_from" of a run tells
which.

Prints when each run reached the test loss, how many updates each device made, how busy the devices
were, and the ratio to the better device alone. Seconds count training only and start when both
workers are ready. If a worker was late, the column "both since" gives the training second at which
it joined; a ratio from before that second is marked, because it does not measure both together.
"""

import argparse
import math
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, hogbatch_run, machine, report
from benchmarks.common.cases import CASES, Case, short
from benchmarks.common.data_sets import FILES, task_directory
from benchmarks.common.peer_process import process_limit, train_once
from benchmarks.common.report import Run
from benchmarks.common.search import TunedSettings, tune
from benchmarks.heterogeneous.table import ALONE, table
from benchmarks.peers import TUNED
from benchmarks.peers.contract import Stopwatch, reached
from benchmarks.peers.pytorch_gpu import NAME, objection
from hogbatch.errors import UsageError
from hogbatch.kernels.gpu.probe import find_gpus
from hogbatch.machine.linux import nvidia_driver, read_topology

TOGETHER = ("hogbatch", "adaptive")
PYTORCH = "pytorch"
KINDS = (*ALONE, *TOGETHER, PYTORCH)
EVALUATIONS = 120  # of a metric in one run
GPU_PACKAGES = ("torch", "cupy-cuda12x", "cupy-cuda13x")
SETTINGS = TunedSettings(TUNED)


def train_ours(options: argparse.Namespace, case: Case, kind: str, seed: int) -> Run:
    """One run of `hogbatch train`."""
    flags = worker_flags(options, kind)
    limits = ["--max-seconds", f"{options.max_seconds:g}", "--seed", f"{seed}"]
    if not (options.past_target or case.metric):
        limits += ["--target-loss", f"{case.task.target:g}"]
    if case.metric:  # such evaluations are slow, and by default so rare that seconds are rough
        limits += ["--eval-seconds", f"{options.max_seconds / EVALUATIONS:g}"]
    command = [*case.flags(options.data), *flags, *limits]
    outcome = hogbatch_run.train(command, process_limit(options.max_seconds))
    return {
        "error": outcome.error or lost_workers(outcome.summary),
        "wall_s": outcome.wall_s,
        "flags": flags,
        "history": case.points(outcome.history),
        "workers": outcome.summary.get("workers", []),
    }


def worker_flags(options: argparse.Namespace, kind: str) -> list[str]:
    """The flags in which `kind` differs from the others."""
    cpu, gpu = f"cpu:{options.threads}", f"gpu:{options.gpu}"
    workers = {"cpu": cpu, "gpu": gpu}.get(kind, f"cpu:{options.threads_with_gpu},{gpu}")
    policy = ["--policy", kind, "--start-with", "2"] if kind in TOGETHER else []
    return ["--workers", workers, *policy, *([] if kind == "cpu" else options.extra)]


def precision_in(flags: list[str]) -> str:
    """The precision of matrix products that flags of `hogbatch train` ask for."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--precision", default="tf32")
    return str(parser.parse_known_args(flags)[0].precision)


def lost_workers(summary: dict[str, Any]) -> str | None:
    """The error of a run that lost workers; None if it lost none."""
    lost = summary["faults"]["workers_lost"]
    return f"{lost} of the workers lost" if lost else None


def pytorch(options: argparse.Namespace, which: str) -> Callable[[int], Run]:
    """A function of a seed that makes one run on `which`; --tune searches the setting first."""
    case = CASES[which]
    fixed = {"device": f"cuda:{options.gpu}", "activation": case.activation}
    fixed["precision"] = precision_in(options.extra)
    if options.tune:
        with task_directory(case.task, options.data) as (problem, directory):
            watch = Stopwatch(case.task.target, options.max_seconds)
            tune(NAME, SETTINGS, which, problem, directory, watch, fixed)
    tuned = SETTINGS.setting(which, NAME)
    setting, origin = (tuned, "search") if tuned else (case.setting, "default")
    target = -math.inf if options.past_target else case.task.target

    def train(seed: int) -> Run:
        if setting is None:
            error = "no setting is known; search for one with --tune"
            return {"error": error, "history": [], "workers": []}
        with task_directory(case.task, options.data, seed) as (problem, directory):
            try:
                watch = Stopwatch(target, options.max_seconds)
                answer = train_once(NAME, directory, setting | fixed, seed, watch)
            except RuntimeError as error:
                return {"error": str(error), "history": [], "workers": []}
        history = with_epochs(answer["curve"], answer["rows"] / len(problem.train))
        used = {"setting": setting | fixed, "setting_from": origin}
        return {"error": None, **used, "history": history, "workers": []}

    return train


def with_epochs(curve: Sequence[Sequence[float]], epochs: float) -> list[dict[str, float]]:
    """A curve as a history; a peer counts its rows only at the end, but its speed is constant."""
    whole = curve[-1][0] or 1.0
    return [
        {"seconds": seconds, "epochs": short(epochs * seconds / whole), "test_loss": loss}
        for seconds, loss in curve
    ]


def measure(options: argparse.Namespace, which: str) -> Iterator[Run]:
    """Train every kind on `which`, once per seed; each run as soon as it is done.

    They train in turn, so that changes in the machine's speed affect all of them.
    """
    case = CASES[which]
    peer = pytorch(options, which) if PYTORCH in options.kinds else None
    for seed in range(options.seeds):
        for kind in options.kinds:
            train = peer if peer and kind == PYTORCH else partial(train_ours, options, case, kind)
            run = train(seed)
            run = {"set": which, "name": kind, "seed": seed, **evaluated(run, case.task.target)}
            error = f" ({run['error']})" if run["error"] else ""
            print(f"{which} {kind} seed {seed}: {run['seconds']} s{error}", flush=True)
            yield run


def evaluated(run: Run, target: float) -> Run:
    """`run` with seconds and epochs to the target (None: not reached) and totals per device."""
    points = [point for point in run["history"] if point["test_loss"] is not None]
    return run | {
        "seconds": reached(hogbatch_run.loss_curve(points), target),
        "epochs": next((p["epochs"] for p in points if p["test_loss"] <= target), None),
        "devices": {device: hogbatch_run.device_totals(run["workers"], device) for device in ALONE},
    }


def parse(flags: Sequence[str] | None) -> argparse.Namespace:
    """The flags; exit code 2 with one sentence for invalid values."""
    parser = arguments.parser("heterogeneous", __doc__)
    sets, default = list(CASES), [name for name in CASES if name != "a9a"]
    add = parser.add_argument
    add("data", type=Path, metavar="DIR", help=f"directory of the data sets: {FILES}")
    add(
        "--only",
        type=arguments.names(sets),
        default=default,
        metavar="SETS",
        help=f"data sets out of {', '.join(sets)} (default: all but a9a)",
    )
    add("--kinds", type=arguments.names(KINDS), default=list(KINDS), help=", ".join(KINDS))
    add(
        "--gpu",
        type=arguments.gpu_or_host,
        default="0",
        metavar="N|host",
        help="number of the GPU; host: NumPy on a CPU core in place of a GPU (default: 0)",
    )
    threads = "CPU threads (default: all cores; beside a GPU worker one less)"
    add("--threads", type=arguments.positive(int), help=threads)
    arguments.add_number(parser, "--seeds", 3, "number of seeds")
    arguments.add_number(parser, "--max-seconds", 60.0, "maximum training seconds")
    add("--past-target", action="store_true", help="training until --max-seconds, for full curves")
    add(
        "--extra",
        type=shlex.split,
        default=[],
        metavar="'...'",
        help="additional flags of `hogbatch train` for runs with a GPU",
    )
    add("--tune", action="store_true", help="search for PyTorch's setting on this GPU")
    arguments.add_json(parser)
    return parser.parse_args(flags)


def settle(options: argparse.Namespace) -> dict[str, Any] | None:
    """Determine the threads and whether PyTorch takes part; return the GPU's description.

    UsageError if something is missing that the later runs need.
    """
    cores, host = read_topology().threads, options.gpu == "host"
    fewer = max(1, cores - 1)  # beside a GPU, as `--workers auto` chooses
    options.threads_with_gpu = options.threads or fewer
    options.threads = options.threads or (fewer if host else cores)
    note = "; gpu:host uses one core, which runs with CPU workers only leave idle" if host else ""
    print(f"cpu:{options.threads} of {cores} cores{note}", flush=True)
    gpu = None if host or options.kinds == ["cpu"] else gpu_description(int(options.gpu))
    if PYTORCH in options.kinds:
        reason = "--gpu host is not a GPU" if host else objection(options.gpu)
        if reason:
            print(f"skipping {PYTORCH}: {reason}", flush=True)
            options.kinds.remove(PYTORCH)
    if not (options.kinds and options.only):
        raise UsageError("nothing is left to measure; add kinds with --kinds or sets with --only")
    return gpu


def check_files(options: argparse.Namespace) -> None:
    """UsageError if data files are missing."""
    files = [path for which in options.only for path in CASES[which].task.files(options.data)]
    if absent := [path for path in files if not path.exists()]:
        raise UsageError(
            f"{absent[0]} does not exist; give the directory of the data sets, or other sets "
            "with --only"
        )


def gpu_description(ordinal: int) -> dict[str, Any]:
    """Name, memory in bytes and driver of a GPU; UsageError if absent."""
    probe = find_gpus()
    gpu = next((gpu for gpu in probe.devices if gpu.ordinal == ordinal), None)
    if gpu is None:
        usable = ", ".join(f"{each.ordinal}" for each in probe.devices) or probe.reason
        raise UsageError(
            f"--gpu {ordinal}: no such GPU (usable: {usable}); --gpu host runs without one"
        )
    return {"name": gpu.name, "memory": gpu.memory, "driver": nvidia_driver()}


def description(options: argparse.Namespace, gpu: dict[str, Any] | None) -> dict[str, Any]:
    """The settings of the measurement, in addition to the machine's description."""
    return {
        "versions": machine.describe(*GPU_PACKAGES)["versions"],
        "gpu": gpu,
        "threads": options.threads,
        "threads_with_gpu": options.threads_with_gpu,
        "limit_s": options.max_seconds,
        "extra": options.extra,
        "targets": {which: CASES[which].task.target for which in options.only},
    }


def main(flags: Sequence[str] | None = None) -> int:
    """Measure, print and write; exit code 1 if a run failed, 2 if nothing can be measured."""
    options = parse(flags)
    try:
        check_files(options)
        gpu = settle(options)
    except UsageError as error:
        print(f"heterogeneous: {error}", file=sys.stderr)
        return error.exit_code
    settings, runs = description(options, gpu), list[Run]()
    for which in options.only:
        for run in measure(options, which):
            runs.append(run)  # written after each run, so that an interruption loses only one
            report.write(options.json, runs, **settings)
        found = [run for run in runs if run["set"] == which]
        print(table(found, settings["targets"], options.max_seconds), flush=True)
    return int(any(run["error"] for run in runs))


if __name__ == "__main__":
    sys.exit(main())
