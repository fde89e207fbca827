"""The report as text and as JSON, without names of the user."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final, NamedTuple

from hogbatch.cli.doctor.checks import Status, Verdict
from hogbatch.machine.printable import plural, printable

LABELS: Final = {Status.OK: "ok", Status.WARN: "warn", Status.UNKNOWN: "?"}


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
