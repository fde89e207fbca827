import math

import numpy as np
import pytest

from hogbatch.kernels import contract
from hogbatch.wire.codec import decode_to_coordinator, encode
from hogbatch.wire.messages import Done, Failed, Lease
from hogbatch.workers.compute.report import report

TRAIN = Lease(7, "train", 2, 100, 160, 16, 0.1, 3)
EVALUATE = Lease(8, "test", 2, 0, 60, 256, 0.0, 3)


def totals(**cells):
    made = np.zeros(contract.TOTALS)
    for name, value in cells.items():
        made[getattr(contract, name.upper())] = value
    return made


def test_a_finished_lease_is_reported_with_its_sums():
    sums = totals(rows=60, updates=4, loss=31.5, skipped=2, skipped_row=18, active=1002)
    counts = {"updates": 4, "skipped": 2, "skipped_row": 18, "active": 250.5}  # a mean of outputs
    done = report(TRAIN, sums, 0.25)
    assert done == Done(7, rows=60, seconds=0.25, loss=31.5, metric_sums=(), **counts)


def test_only_evaluations_report_metric_sums():
    sums = totals(rows=60, metric_sums=41)
    assert report(TRAIN, sums, 0.1).metric_sums == ()
    done = report(EVALUATE, sums, 0.1)
    assert (done.metric_sums, done.active) == ((41.0, 0.0, 0.0), 0)


def test_a_worker_with_a_replica_reports_more_fields():
    costs = {"merge_seconds": 0.5, "transferred": 4000, "transfer_seconds": 0.25}
    fields = {"staleness": 1.5, "refused": 1, "too_large": 16, **costs}
    done = report(TRAIN, totals(rows=32, updates=1, skipped=16), 0.25, rows=32, **fields)
    assert done.rows == 32 and {name: getattr(done, name) for name in fields} == fields
    assert decode_to_coordinator(encode(done)) == done
    assert isinstance(report(TRAIN, totals(rows=16), 0.25, rows=32, **fields), Failed)


def test_an_interrupted_lease_has_failed():
    message = report(TRAIN, totals(rows=48, updates=3), 0.1)
    assert message == Failed("lease 7 was revoked after 48 rows")


@pytest.mark.parametrize("loss", [-1e-9, math.nan])
def test_every_report_passes_the_decoder(loss):
    done = report(TRAIN, totals(rows=60, loss=loss), 0.1)
    assert decode_to_coordinator(encode(done)) == done and done.loss == 0
