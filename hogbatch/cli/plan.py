"""`hogbatch plan`: how many servers a training problem allows."""

import json
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hogbatch.cli.parser import Parser, Usage, add_link, link_of, positive, whole
from hogbatch.config.arguments import ArgumentGroup
from hogbatch.config.flags import Group
from hogbatch.errors import DataError, UsageError

if TYPE_CHECKING:
    from hogbatch.cluster.decisions.estimate import Task

PLAN: Final = Usage(
    "plan",
    "[RUN_DIR] [options]",
    "Predict how long merges between several servers take, from a run or the sizes of a problem.",
)
MOST_ROWS: Final = 10**15


def plan(arguments: Sequence[str]) -> int:
    """`hogbatch plan`."""
    options = _parser().read(arguments)
    from hogbatch.cluster.decisions import plan_text as text
    from hogbatch.cluster.decisions.estimate import predict

    link = link_of(options.gbit, options.latency_us)
    forecast = predict(_task(options), link, options.share, options.servers)
    if options.json:
        print(json.dumps(text.fields(forecast), indent=2))
    else:
        print(*text.lines(forecast), sep="\n")
    return 0


def _parser() -> Parser:
    from hogbatch.cluster.decisions.estimate import MOST_SERVERS

    parser = Parser(PLAN)
    parser.epilog = (
        "Nothing is sent: the times are predicted. To train on several servers: --cluster of train."
    )
    parser.add_argument(
        "run_dir",
        metavar="RUN_DIR",
        type=Path,
        nargs="?",
        help="run that has ended, also of a rehearsal",
    )
    _add_problem(parser.add_argument_group("problem, in place of RUN_DIR"))
    servers = parser.add_argument_group("servers")
    servers.add_argument(
        "--servers",
        type=_numbers(whole(2, MOST_SERVERS)),
        metavar="N,...",
        default="2,4,8,16,32,64,100",
        help="numbers of servers to plan for (default: %(default)s)",
    )
    add_link(servers)
    servers.add_argument(
        "--merges-per-epoch",
        type=positive,
        metavar="X",
        default="5",
        help="merges while all servers together train on the data once (default: %(default)s)",
    )
    servers.add_argument(
        "--share",
        type=positive,
        metavar="FRACTION",
        default="0.1",
        help="wanted fraction of the time for merges (default: %(default)s)",
    )
    output = parser.add_argument_group(Group.OUTPUT.value)
    output.add_argument("--json", action="store_true", help="the plan as JSON")
    return parser


def _add_problem(group: ArgumentGroup) -> None:
    """Add the flags that describe a problem without a run."""
    group.add_argument(
        "--network",
        type=_numbers(whole(1, 2**31 - 1)),
        metavar="SIZES",
        help="numbers of inputs, hidden units and outputs of fully connected layers: "
        "54,512,512,512,7",
    )
    group.add_argument("--rows", type=whole(1, MOST_ROWS), metavar="N", help="training rows")
    group.add_argument(
        "--rows-per-second",
        type=positive,
        metavar="X",
        help="rows that one server trains on in a second",
    )


def _task(options: Namespace) -> "Task":
    """The problem to plan for: that of a run, or as given by sizes."""
    sizes = {
        "--network": options.network,
        "--rows": options.rows,
        "--rows-per-second": options.rows_per_second,
    }
    named = [flag for flag, value in sizes.items() if value is not None]
    if options.run_dir is not None and named:
        raise UsageError(f"expected either RUN_DIR or {', '.join(sizes)}; got {named[0]}, too")
    if options.run_dir is not None:
        return _task_of(options.run_dir, options.merges_per_epoch)
    if len(named) < len(sizes):
        missing = " and ".join(flag for flag in sizes if flag not in named)
        raise UsageError(
            f"expected RUN_DIR, or all of {', '.join(sizes)}; "
            + (f"{missing} must be given, too" if named else "got none of them")
        )
    if len(options.network) < 2:
        raise UsageError(f"--network: expected two or more sizes; got {options.network[0]}")
    from hogbatch.cluster.decisions.estimate import Task, parameters_of

    parameters = parameters_of(options.network)
    return Task(parameters, options.rows, options.rows_per_second, options.merges_per_epoch)


def _task_of(run_dir: Path, merges: float) -> "Task":
    """The task of a run that has ended. UsageError if it has no model or has not trained."""
    from hogbatch.cluster.decisions.estimate import Task
    from hogbatch.events.names import MODEL
    from hogbatch.model.file import load_model
    from hogbatch.views.status.run_files import expect_run, read_summary

    expect_run(run_dir)
    summary = read_summary(run_dir)
    if summary is None:
        raise UsageError(f"{run_dir} has no results yet; expected a run that has ended")
    try:
        rows, epochs, seconds = (float(summary[key]) for key in ("rows", "epochs", "train_seconds"))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{run_dir}: the summary is damaged: {error!r}") from None
    if not (rows > 0 and epochs > 0 and seconds > 0):
        raise UsageError(f"{run_dir} has not trained on any row; expected a run with a model")
    model = load_model(run_dir / MODEL)
    parameters = sum(tensor.size for tensor in model.tensors.values())
    return Task(parameters, round(rows / epochs), rows / seconds, merges)


def _numbers(number: Callable[[str], int]) -> Callable[[str], list[int]]:
    """The type of flags with numbers separated by commas."""
    return lambda text: [number(part) for part in text.split(",")]
