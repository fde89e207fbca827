"""`hogbatch doctor`: what this machine and this installation offer, and what to improve."""

import json
import os
import platform
import pwd
import re
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from hogbatch.cli.doctor import checks, reading
from hogbatch.cli.doctor.checks import Status, Verdict
from hogbatch.cli.parser import Parser, Usage
from hogbatch.config.flags import Group
from hogbatch.errors import UsageError
from hogbatch.jit import VECTOR_VARIABLE
from hogbatch.machine import linux
from hogbatch.machine.cachedir import find_cache_root
from hogbatch.machine.limits import check_limits
from hogbatch.machine.printable import encodable, plural, printable
from hogbatch.version import version


def _limits() -> Verdict:
    check_limits()
    return checks.ok(f"{resource.getrlimit(resource.RLIMIT_NOFILE)[0]} open files")


LABELS: Final = {Status.OK: "ok", Status.WARN: "warn", Status.UNKNOWN: "?"}
DOCTOR: Final = Usage(
    "doctor",
    "[options]",
    "Check this machine and this installation, and print what to improve.",
)

CHECKS: Final[dict[str, dict[str, Callable[[], Verdict]]]] = {
    "processor": {
        "processor": lambda: checks.processor(
            linux.processor_name(),
            *reading.read_vectors(),
            os.environ.get(VECTOR_VARIABLE, ""),
            platform.machine(),
        ),
        "cores": lambda: checks.cores(
            linux.read_topology(), os.cpu_count() or 1, len(reading.read_gpus().usable)
        ),
        "CPU quota": lambda: checks.quota(linux.read_topology()),
        "governor": lambda: checks.governor(
            reading.read_governors(linux.read_topology().cores), reading.frequency_driver()
        ),
        "load": lambda: checks.load(
            *reading.measure_load(linux.read_topology().cores), len(linux.read_topology().cores)
        ),
    },
    "memory": {
        "memory": lambda: checks.memory(
            linux.free_memory(), linux.total_memory(), linux.memory_quota()
        ),
        "shared memory": lambda: checks.shared_memory(reading.try_memfd()),
        "huge pages": lambda: (
            checks.huge_pages(True, "")
            if reading.try_huge_page()
            else checks.huge_pages(False, reading.read_huge_page_setting())
        ),
    },
    "GPU": {
        "GPUs": lambda: checks.gpus(reading.read_gpus()),
        "driver": lambda: checks.driver(reading.read_gpus()),
        "CuPy": lambda: checks.cupy(reading.read_gpus()),
    },
    "caches": {
        "kernels": lambda: checks.kernels(reading.read_kernel_folder(), find_cache_root().note),
        "data": lambda: checks.data(reading.read_data_folder()),
    },
    "software": {
        "packages": lambda: checks.packages(reading.read_versions(), reading.import_errors()),
        "extras": lambda: checks.extras(reading.read_versions()),
        "limits": _limits,
    },
}


def doctor(arguments: Sequence[str]) -> int:
    """`hogbatch doctor`."""
    parser = Parser(DOCTOR)
    parser.epilog = (
        "Each check is ok, warn, or unknown (?) if something cannot be read. The exit code is 0 "
        "also if there are warnings."
    )
    output = parser.add_argument_group(Group.OUTPUT.value)
    output.add_argument(
        "--json",
        action="store_true",
        help="all checks and versions as JSON, for bug reports; without names of users",
    )
    options = parser.read(arguments)
    home, user = _private_names()
    rows = [
        CheckResult(group, name, redacted(attempt(decide), home, user))
        for group, members in CHECKS.items()
        for name, decide in members.items()
    ]
    python = f"{platform.python_implementation()} {platform.python_version()}"
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    if options.json:
        about = {"hogbatch": version(), "python": python, "system": system}
        report = to_json(about | reading.read_versions(), rows)
    else:
        report = to_text(f"hogbatch {version()}, {python}, {system}", rows)
    print(encodable(report, sys.stdout))
    return 0


def attempt(decide: Callable[[], Verdict]) -> Verdict:
    """Apply a check; UsageError is what a run would be refused with.

    Every exception is caught, because the report is needed most where something unexpected is
    wrong.
    """
    try:
        return decide()
    except UsageError as error:
        return checks.warn(str(error), "no run can start")
    except Exception as error:
        return Verdict(Status.UNKNOWN, f"unknown: {reading.reason(error)}")


def _private_names() -> tuple[str, str]:
    """The home directory and the name of this user, as far as they are known."""
    home = user = ""
    with suppress(RuntimeError, OSError):
        home = str(Path.home())
    with suppress(KeyError):
        user = pwd.getpwuid(os.getuid()).pw_name
    return home, user


class CheckResult(NamedTuple):
    """A verdict with its place in the report."""

    group: str
    name: str
    verdict: Verdict


def to_text(headline: str, rows: Sequence[CheckResult]) -> str:
    """Show one line for each check, with its advice and command below."""
    lines = [printable(headline)]
    column = max(len(row.name) for row in rows)
    for group, members in groupby(rows, lambda row: row.group):
        lines += ["", group]
        for _, name, verdict in members:
            start = f"  {LABELS[verdict.status]:4}  {name:{column}}  "
            lines.append(start + printable(verdict.value))
            below = filter(None, (verdict.advice, verdict.command))
            lines += [" " * len(start) + printable(text) for text in below]
    count = sum(row.verdict.status is Status.WARN for row in rows)
    summary = plural(count, "warning") if count else "no warnings"
    return "\n".join([*lines, "", summary])


def to_json(versions: Mapping[str, str | None], rows: Sequence[CheckResult]) -> str:
    """Show all checks and versions as one JSON object."""
    checks = [
        {
            "group": group,
            "name": name,
            "status": verdict.status.value,
            "value": verdict.value,
            "advice": ": ".join(filter(None, (verdict.advice, verdict.command))),
        }
        for group, name, verdict in rows
    ]
    return json.dumps({"versions": dict(versions), "checks": checks}, indent=2)


def redacted(verdict: Verdict, home: str, user: str) -> Verdict:
    """Remove the names of the user from a verdict."""
    advice = None if verdict.advice is None else redact(verdict.advice, home, user)
    return replace(verdict, value=redact(verdict.value, home, user), advice=advice)


def redact(text: str, home: str, user: str) -> str:
    """Shorten paths below the home directory to ~, and replace the user's name in others."""
    if home not in ("", "/"):
        text = re.sub(rf"(?<![\w./-]){re.escape(home)}(?![\w.-])", "~", text)
    if user not in ("", "root"):
        text = re.sub(rf"(?<=/){re.escape(user)}(?![\w.-])", "USER", text)
    return text
