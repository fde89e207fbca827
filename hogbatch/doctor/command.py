"""The command `hogbatch doctor`."""

import os
import shutil
import sys

from hogbatch.doctor.checks import check
from hogbatch.doctor.reading import read_facts
from hogbatch.doctor.reading.software import read_private_names
from hogbatch.doctor.text import to_json, to_text
from hogbatch.machine.printable import encodable


def execute(*, json: bool) -> int:
    """Print the report; warnings do not change the exit code."""
    facts, names = read_facts(), read_private_names()
    checks = check(facts)
    if json:
        print(to_json(facts, checks, names))
        return 0
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else None
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    print(encodable(to_text(facts, checks, names, width, terminal and not plain), sys.stdout))
    return 0
