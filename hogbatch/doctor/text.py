"""The report as text and as JSON."""

import json
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from hogbatch.doctor.facts import Facts, PrivateNames, SoftwareFacts, Unknown
from hogbatch.doctor.redaction import redact
from hogbatch.doctor.verdict import Check, Status
from hogbatch.machine.printable import printable

LABELS: Final = {Status.OK: "ok", Status.WARN: "warn", Status.UNKNOWN: "?"}
COLOURS: Final = {Status.OK: "32", Status.WARN: "33", Status.UNKNOWN: "36"}  # ANSI: green, ...
LABEL_WIDTH: Final = 4
# textwrap does not break lines here, so a command remains on one line and can be copied.
UNBROKEN_BLANK: Final = "\N{NO-BREAK SPACE}"


def to_text(
    facts: Facts,
    checks: Sequence[Check],
    names: PrivateNames,
    width: int | None = None,
    colour: bool = False,
) -> str:
    """One line for each check, in groups.

    With a `width`, long lines are wrapped to this number of columns.
    """
    lines = [_shown(_headline(facts.software), names)]
    column = max(len(check.name) for check in checks)
    for group, members in groupby(checks, lambda check: check.group):
        lines += ["", group]
        for check in members:
            lines += _lines(check, column, names, width, colour)
    return "\n".join([*lines, "", _summary(checks)])


def to_json(facts: Facts, checks: Sequence[Check], names: PrivateNames) -> str:
    """The report as one JSON object."""
    software = facts.software
    versions = {
        "hogbatch": _known(software.hogbatch),
        "python": f"{software.implementation} {software.python}",
        "system": software.system,
        **software.versions,
    }
    found: dict[str, Any] = {
        "versions": {
            name: value if value is None else redact(value, names)
            for name, value in versions.items()
        },
        "checks": [
            {
                "group": check.group,
                "name": check.name,
                "status": check.verdict.status.value,
                "value": redact(check.verdict.value, names),
                "advice": redact(check.verdict.sentence, names),
            }
            for check in checks
        ],
    }
    return json.dumps(found, indent=2)


def _headline(software: SoftwareFacts) -> str:
    python = f"{software.implementation} {software.python}"
    return f"hogbatch {_known(software.hogbatch)}, {python}, {software.system}"


def _known(fact: str | Unknown) -> str:
    return "unknown" if isinstance(fact, Unknown) else fact


def _lines(
    check: Check, column: int, names: PrivateNames, width: int | None, colour: bool
) -> Iterator[str]:
    """The lines of one check; exactly one without a `width`."""
    verdict = check.verdict
    label = LABELS[verdict.status].ljust(LABEL_WIDTH)
    start = f"  {label}  {check.name:{column}}  "
    command = _shown(verdict.command, names).replace(" ", UNBROKEN_BLANK)
    advice = ": ".join(filter(None, (_shown(verdict.advice, names), command)))
    text = "; ".join(filter(None, (_shown(verdict.value, names), advice)))
    wrapped = [text] if width is None else _wrap(text, max(20, width - len(start)))
    for number, line in enumerate(wrapped):
        whole = (start if number == 0 else " " * len(start)) + line.replace(UNBROKEN_BLANK, " ")
        if colour and number == 0:
            whole = whole.replace(label, f"\x1b[{COLOURS[verdict.status]}m{label}\x1b[0m", 1)
        yield whole


def _shown(text: str, names: PrivateNames) -> str:
    return printable(redact(text, names))


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _summary(checks: Sequence[Check]) -> str:
    count = sum(check.verdict.status is Status.WARN for check in checks)
    return f"{count or 'no'} warning" + "s" * (count != 1)
