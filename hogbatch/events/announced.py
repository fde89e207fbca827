"""Events of a run in words."""

from collections.abc import Mapping
from typing import Any, Final

ANNOUNCED: Final = {  # events that are also printed, with the sentence to print
    "worker_joined": "{worker} joined: process {pid}, {runs_on}",
    "plane": "models of servers are moved through {plane}",
    "worker_compiles": "{worker} is compiling its kernels, which takes about 30 s; this happens "
    "once per installation and kind of network",
    "worker_ready": "{worker} is ready, batch size {batch_size}",
    "worker_lost": "{worker} was lost: {reason}; its rows are reassigned",
    "goodbye": "{worker} has left; its rows are reassigned",
    "worker_restarted": "{runs_on} was restarted ({times} of {most})",
    "worker_given_up": "{runs_on} will not be restarted: {reason}",
    "rows_skipped": "{worker}: {skipped} of the rows {rows} of epoch {epoch} had no finite "
    "gradient and were skipped, among them row {row} of the training set",
    "merge_refused": "{worker}: {refused} merges over the rows {rows} of epoch {epoch} were not "
    "finite and were skipped",
    "rows_often_skipped": "{warning}",
    "poisoned": "the model is not finite at {where}: rolling back to the last good snapshot and "
    "halving the learning rate ({times} of {most} roll-backs without progress between them); the "
    "first skipped rows were in {suspects}",
    "recovered": "training has made progress since the roll-back: the learning rate is now "
    "{rate_factor:.0%} of its configured value",
    "quarantined": "rows {rows} of epoch {epoch} have killed {deaths} workers and are excluded "
    "from training; see bad-leases.jsonl",
    "checkpoint_failed": "{reason}; training continues",
    "worker_parked": "{worker} is parked, so it only evaluates: {reason}",
    "worker_unparked": "{worker} trains again",
    "out_of_memory": "{worker} ran out of memory: batch size {from} -> {to}",
}


def sentence(event: str, fields: Mapping[str, Any]) -> str:
    """The sentence about an event of ANNOUNCED; KeyError if a field is missing."""
    return ANNOUNCED[event].format(**fields)


def description(fields: Mapping[str, Any]) -> str:
    """Data and network of a run, by the fields of its event "started"."""
    form = "sparse" if fields["sparse"] else "dense"
    testing = f"{fields['test_rows']:,} test rows" if fields["test_rows"] else "no test set"
    return (
        f"{fields['data']}: {fields['train_rows']:,} training rows, {testing}, {form}; "
        f"network {fields['network']}, loss {fields['loss']}"
    )
