"""What a check says."""

from dataclasses import dataclass
from enum import StrEnum

from hogbatch.doctor.facts import Unknown


class Status(StrEnum):
    """Whether there is something to do."""

    OK = "ok"
    WARN = "warn"
    UNKNOWN = "unknown"  # what is checked could not be read


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one check found, its effect and what to do."""

    status: Status
    value: str
    advice: str = ""
    command: str = ""  # that follows the advice, to be copied into a shell

    @property
    def sentence(self) -> str:
        """The advice and its command."""
        return ": ".join(filter(None, (self.advice, self.command)))


@dataclass(frozen=True, slots=True)
class Check:
    """A verdict with its place in the report."""

    group: str
    name: str
    verdict: Verdict


def ok(value: str, advice: str = "", command: str = "") -> Verdict:
    """Nothing has to be done; advice is optional."""
    return Verdict(Status.OK, value, advice, command)


def warn(value: str, advice: str, command: str = "") -> Verdict:
    """Something makes runs slower or impossible; `advice` is the effect and what to do."""
    return Verdict(Status.WARN, value, advice, command)


def unknown(fact: Unknown) -> Verdict:
    """The fact could not be read."""
    return Verdict(Status.UNKNOWN, f"unknown: {fact.reason}")
