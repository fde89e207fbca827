"""Are CPU and GPU together worth more than the better one alone?

Trains each set through the command line with CPU workers alone, with the GPU alone, with both under
`--policy hogbatch` and under `--policy adaptive`, and with PyTorch on that GPU at the setting that
a search over its grid found best; in turn, once a seed. Says when each reached the test loss, who
made how many updates, how busy the devices were, and how both compare with the better one alone.

    scripts/bench heterogeneous DIR --seeds 3 --json out.json --figure figures
    scripts/bench heterogeneous hogbatch/data/samples --only a9a --gpu host --max-seconds 3

DIR holds w8a.svm.gz, covtype.csv.gz, delicious-{train,test}.xmc.gz, imdb-{train,test}.svm.gz.
w8a-paper and covtype-paper are trained on the networks of Ma & Rusu 2020 (covtype with all seven
classes); a9a is the bundled sample, to try this out. Seconds are of training alone, and begin when
both workers are ready. Should one of them not have come in time, the column "both since" says when
it did, and a ratio that so says nothing of both together is marked.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import about
from heterogeneous_curves import draw
from heterogeneous_table import ALONE, part, table
from peers.contract import Problem, Setting, Watch, reached
from peers.process import PeerProcess
from peers.pytorch_gpu import PEER, objection
from peers.search import Processes, search
from time_to_loss import TASKS, Task, curve_of, keep, laid_down, listed, read_tuned

from hogbatch.config.sources import merge_sources
from hogbatch.errors import UsageError
from hogbatch.kernels.gpu.probe import find_gpus
from hogbatch.machine.linux import read_topology

TOGETHER = ("hogbatch", "adaptive")
PYTORCH = "pytorch"
KINDS = (*ALONE, *TOGETHER, PYTORCH)
SET_HERE = (
    *("data", "test", "hidden", "activation", "scale", "workers", "policy", "seed"),
    *("max_seconds", "target_loss", "run_dir", "quiet"),
)
SWITCHED = {"true": True, "false": False}
GPU_PACKAGES = ("torch", "cupy-cuda12x", "cupy-cuda13x")

Run = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A set with network and target, and what stands between the layers."""

    task: Task
    activation: str = "relu"

    def flags(self, data: Path) -> list[str]:
        """For `hogbatch train`."""
        return [*self.task.flags(data), "--activation", self.activation]

    def files(self, data: Path) -> list[Path]:
        """What must be there."""
        return [data / name for name in (self.task.data, self.task.test) if name]


CASES = {name: Case(TASKS[name]) for name in ("w8a", "covtype", "delicious", "imdb")} | {
    "w8a-paper": Case(replace(TASKS["w8a"], hidden=(512,) * 8), "sigmoid"),
    "covtype-paper": Case(replace(TASKS["covtype"], hidden=(512,) * 6), "sigmoid"),
    "a9a": Case(Task("a9a.svm.gz", (64,), 0.325, "a9a.t.svm.gz")),
}


def train_ours(arguments: argparse.Namespace, case: Case, kind: str, seed: int) -> Run:
    """One run of `hogbatch train`, in a directory of its own; `wall_s` is of the whole process."""
    flags = worker_flags(arguments, kind)
    limits = ["--max-seconds", f"{arguments.max_seconds:g}", "--seed", f"{seed}", "--quiet"]
    if not arguments.past_target:
        limits += ["--target-loss", f"{case.task.target:g}"]
    with tempfile.TemporaryDirectory() as directory:
        run_dir = Path(directory) / "run"
        command = [sys.executable, "-m", "hogbatch.cli", "train", *case.flags(arguments.data)]
        command += [*flags, *limits, "--run-dir", str(run_dir)]
        began = time.perf_counter()
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        wall_s = time.perf_counter() - began
        path = run_dir / "summary.json"
        summary = json.loads(path.read_text()) if path.exists() else {}
    history = [
        {name: short(value) for name, value in point.items() if name != "test_values"}
        for point in summary.get("history", [])
    ]
    return {
        "error": fault(done.returncode, done.stderr, summary),
        "wall_s": round(wall_s, 3),
        "flags": flags,
        "history": history,
        "workers": summary.get("workers", []),
    }


def worker_flags(arguments: argparse.Namespace, kind: str) -> list[str]:
    """What tells `kind` from the others."""
    cpu, gpu = f"cpu:{arguments.threads}", f"gpu:{arguments.gpu}"
    workers = {"cpu": cpu, "gpu": gpu}.get(kind, f"{cpu},{gpu}")
    policy = ["--policy", kind, "--start-with", "2"] if kind in TOGETHER else []
    extra = {} if kind == "cpu" else arguments.extra
    return ["--workers", workers, *policy, *(as_flag(*pair) for pair in extra.items())]


def fault(code: int, said: str, summary: dict[str, Any]) -> str | None:
    """Why a run was not what it was meant to be; None if it was."""
    if code:
        return f"exit code {code}: {said.strip()}"
    lost = summary["faults"]["workers_lost"]
    return f"{lost} of the workers lost" if lost else None


def short(value: Any) -> Any:
    """Six digits of a float: enough to plot, and files stay small."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def pytorch(arguments: argparse.Namespace, which: str) -> Callable[[int], Run]:
    """A function that makes one run on `which` with a seed; the setting is searched if need be."""
    case = CASES[which]
    place = {"device": f"cuda:{arguments.gpu}", "activation": case.activation}
    place["precision"] = arguments.extra.get("precision", "float32")
    setting = tuned(which)
    if arguments.tune or setting is None:
        with laid_down(case.task, arguments.data) as (problem, directory):
            tune(which, problem, directory, place, arguments.max_seconds)
        setting = tuned(which)
    target = -math.inf if arguments.past_target else case.task.target

    def train(seed: int) -> Run:
        if setting is None:
            return {"error": "no setting of the grid ran", "history": [], "workers": []}
        with (
            laid_down(case.task, arguments.data, seed) as (problem, directory),
            PeerProcess(PEER.name, directory, threads=1) as process,
        ):
            try:
                answer = process.train(setting | place, seed, Watch(target, arguments.max_seconds))
            except RuntimeError as error:
                return {"error": str(error), "history": [], "workers": []}
        history = paced(answer["curve"], answer["rows"] / len(problem.train))
        return {"error": None, "setting": setting | place, "history": history, "workers": []}

    return train


def tuned(which: str) -> Setting | None:
    """The setting that a search on `which` found last."""
    found: Setting | None = read_tuned().get(which, {}).get(PEER.name, {}).get("setting")
    return found


def tune(which: str, problem: Problem, directory: Path, place: Setting, limit_s: float) -> None:
    """Search the grid of PyTorch on the GPU, and keep what is found for later runs."""
    grid, watch = PEER.grid(problem), Watch(CASES[which].task.target, limit_s)
    with closing(Processes(PEER.name, directory, print)) as processes:

        def train(setting: Setting, watch: Watch) -> dict[str, Any]:
            return processes.train(setting | place, watch)

        best = search(PEER, grid, tuned(which), train, watch)
    if best.setting:
        keep(which, PEER.name, best, len(grid))


def paced(curve: Sequence[Sequence[float]], epochs: float) -> list[dict[str, float]]:
    """A curve in the form of a history; a peer counts rows at the end, but its pace is even."""
    whole = curve[-1][0] or 1.0
    return [
        {"seconds": seconds, "epochs": short(epochs * seconds / whole), "test_loss": loss}
        for seconds, loss in curve
    ]


def measure(arguments: argparse.Namespace, which: str) -> list[Run]:
    """Train every kind on `which`, once a seed, in turn: a drift of the machine meets all alike."""
    case, runs = CASES[which], []
    rival = pytorch(arguments, which) if PYTORCH in arguments.kinds else None
    for seed in range(arguments.seeds):
        for kind in arguments.kinds:
            if kind == PYTORCH and rival:
                run = rival(seed)
            else:
                run = train_ours(arguments, case, kind, seed)
            run = {"set": which, "name": kind, "seed": seed, **finished(run, case.task.target)}
            told = f" ({run['error']})" if run["error"] else ""
            print(f"{which} {kind} seed {seed}: {run['seconds']} s{told}", flush=True)
            runs.append(run)
    return runs


def finished(run: Run, target: float) -> Run:
    """`run` with seconds and epochs to the target (null: not met) and the part of each device."""
    points = [point for point in run["history"] if point["test_loss"] is not None]
    return run | {
        "seconds": reached(curve_of(points), target),
        "epochs": next((p["epochs"] for p in points if p["test_loss"] <= target), None),
        "devices": {device: part(run["workers"], device) for device in ALONE},
    }


def extra_flags(text: str) -> dict[str, str]:
    """An argparse type: "merge_every=4,pin=false" by name, as `hogbatch train` would take it."""
    found: dict[str, str] = {}
    try:
        for each in filter(None, text.split(",")):
            name, equals, value = each.partition("=")
            name = name.strip().replace("-", "_")
            if not equals:
                raise UsageError(f"expected FLAG=VALUE, as in merge_every=4; got {each!r}")
            if name in SET_HERE:
                raise UsageError(f"{name} is set by the benchmark itself; leave it out")
            found[name] = value
        merge_sources({"data": "-"} | {k: SWITCHED.get(v, v) for k, v in found.items()})
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return found


def as_flag(name: str, value: str) -> str:
    """Of the command line."""
    dashed = name.replace("_", "-")
    if value in SWITCHED:
        return f"--{dashed}" if SWITCHED[value] else f"--no-{dashed}"
    return f"--{dashed}={value}"


def above_zero(kind: Callable[[str], float]) -> Callable[[str], float]:
    """An argparse type: a finite number above 0."""

    def number(text: str) -> float:
        value = kind(text)
        if not 0 < value < math.inf:
            raise argparse.ArgumentTypeError(f"expected a number above 0; got {text}")
        return value

    return number


def gpu_device(text: str) -> str:
    """An argparse type: a GPU's number, or "host"."""
    if text == "host" or text.isdecimal():
        return text
    raise argparse.ArgumentTypeError(f"expected the number of a GPU, or host; got {text!r}")


def parse(given: Sequence[str] | None) -> argparse.Namespace:
    """The flags; exit code 2 and one sentence for what they cannot be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    whole, number = above_zero(int), above_zero(float)
    sets, default = listed(list(CASES)), [name for name in CASES if name != "a9a"]
    add = parser.add_argument
    add("data", type=Path, metavar="DATADIR")
    add("--only", type=sets, default=default, metavar="SETS", help=", ".join(CASES))
    add("--kinds", type=listed(KINDS), default=list(KINDS), help=", ".join(KINDS))
    add("--gpu", type=gpu_device, default="0", metavar="0|host", help="host: NumPy as a stand-in")
    add("--threads", type=whole, help="of the CPU worker (default: all cores; one less for host)")
    add("--seeds", type=whole, default=3)
    add("--max-seconds", type=number, default=60.0, help="training seconds of a run, at most")
    add("--past-target", action="store_true", help="go on until --max-seconds, for whole curves")
    add("--extra", type=extra_flags, default={}, metavar="FLAG=VALUE,...", help="to GPU runs")
    add("--tune", action="store_true", help="search PyTorch's setting again, as on another GPU")
    add("--json", type=Path, metavar="FILE", help="write all runs there, after each set")
    add("--figure", type=Path, metavar="DIR", help="draw DIR/SET.svg")
    return parser.parse_args(given)


def settle(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Decide on threads and on whether PyTorch takes part; the GPU as `described` says it is.

    UsageError where something is missing that would be missed after the first runs.
    """
    cores, host = read_topology().threads, arguments.gpu == "host"
    arguments.threads = arguments.threads or max(1, cores - host)
    left = "; gpu:host has a core to itself, so CPU workers alone leave it one too" if host else ""
    print(f"cpu:{arguments.threads} of {cores} cores{left}", flush=True)
    gpu = None if host or arguments.kinds == ["cpu"] else described(int(arguments.gpu))
    if PYTORCH in arguments.kinds:
        reason = "--gpu host is no GPU" if host else objection(arguments.gpu)
        if reason:
            print(f"{PYTORCH} left out: {reason}", flush=True)
            arguments.kinds.remove(PYTORCH)
    if not (arguments.kinds and arguments.only):
        raise UsageError("nothing is left to measure; name more with --kinds and --only")
    return gpu


def check_places(arguments: argparse.Namespace) -> None:
    """UsageError if data cannot be read, or results not be written where they are to go."""
    files = [path for which in arguments.only for path in CASES[which].files(arguments.data)]
    if absent := [path for path in files if not path.exists()]:
        raise UsageError(f"{absent[0]} is not there; give its folder, or other sets with --only")
    if arguments.json and not arguments.json.parent.is_dir():
        raise UsageError(f"--json {arguments.json}: there is no folder {arguments.json.parent}")
    if arguments.figure and find_spec("matplotlib") is None:
        raise UsageError("--figure needs matplotlib, which is not installed; leave it out")


def described(ordinal: int) -> dict[str, Any]:
    """Name, bytes of memory and driver (null: nvidia-smi is not there) of a GPU; or UsageError."""
    probe = find_gpus()
    gpu = next((gpu for gpu in probe.devices if gpu.ordinal == ordinal), None)
    if gpu is None:
        usable = ", ".join(f"{each.ordinal}" for each in probe.devices) or probe.reason
        raise UsageError(f"no GPU {ordinal} for --gpu ({usable}); --gpu host rehearses without one")
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        driver = None
    return {"name": gpu.name, "memory": gpu.memory, "driver": driver}


def circumstances(arguments: argparse.Namespace, gpu: dict[str, Any] | None) -> dict[str, Any]:
    """What `about.write` does not know of itself."""
    versions = about.machine()["versions"]
    for name in GPU_PACKAGES:
        with suppress(PackageNotFoundError):
            versions |= {name: version(name)}
    return {
        "versions": versions,
        "gpu": gpu,
        "threads": arguments.threads,
        "limit_s": arguments.max_seconds,
        "extra": arguments.extra,
        "targets": {which: CASES[which].task.target for which in arguments.only},
    }


def main(given: Sequence[str] | None = None) -> int:
    """Measure, print, write and draw; 1 if a run failed, 2 if nothing can be measured."""
    arguments = parse(given)
    try:
        check_places(arguments)
        gpu = settle(arguments)
    except UsageError as error:
        print(f"heterogeneous: {error}", file=sys.stderr)
        return error.exit_code
    settings, runs = circumstances(arguments, gpu), []
    for which in arguments.only:
        mine = measure(arguments, which)
        print(table(mine, settings["targets"], arguments.max_seconds), flush=True)
        runs += mine  # and written at once: a GPU may be lent for a while only
        about.write(arguments.json, runs, **settings)
        if arguments.figure:
            arguments.figure.mkdir(parents=True, exist_ok=True)
            draw(mine, which, settings["targets"][which], arguments.figure / f"{which}.svg")
    return int(any(run["error"] for run in runs))


if __name__ == "__main__":
    sys.exit(main())
