"""`hogbatch report`: one HTML file about one or several runs."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hogbatch.cli.parser import Parser
from hogbatch.machine.printable import encodable, printable

if TYPE_CHECKING:  # these need NumPy, which the help does not
    from hogbatch.config.train import TrainConfig
    from hogbatch.data.load import LoadedData
    from hogbatch.views.console import Console


def report(arguments: Sequence[str]) -> int:
    """Write an HTML file with the figures and tables of one or several runs."""
    parser = Parser(report, "RUN_DIR... [options]")
    parser.epilog = (
        "The file needs no network and no other file. A report of a run in progress shows the run "
        "as it is now. An earlier report is replaced; any other existing file is refused."
    )
    parser.add_argument(
        "run_dirs",
        nargs="+",
        metavar="RUN_DIR",
        type=Path,
        help="run directory; several are shown side by side, with the settings that differ",
    )
    parser.output.add_argument(
        "--output",
        metavar="FILE",
        type=Path,
        help="file to write (default: RUN_DIR/report.html; for several runs report.html)",
    )
    options = parser.read(arguments)
    from hogbatch.views.report.command import write_report

    path = write_report(options.run_dirs, options.output, _read_data)
    size = path.stat().st_size / 1000
    print(encodable(f"report: {printable(str(path))} ({size:,.0f} kB)", sys.stdout))
    return 0


def _read_data(config: "TrainConfig", console: "Console") -> "LoadedData":
    from hogbatch.run.setup import load_data

    return load_data(config, console)
