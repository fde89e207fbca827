"""Layers below dense ones: their gradients, and the compiled loop and devices beside NumPy."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from hogbatch.config.augmentation import Augmentation
from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.kernels.contract import ROWS, SGD, SKIPPED, UPDATES
from hogbatch.kernels.cpu import backbone as cpu_backbone, embedding
from hogbatch.kernels.dropout import Dropout
from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.kernels.reference import NUMPY_KERNELS
from tests.support.compiled_networks import Case
from tests.support.executor_runs import (
    PLAIN,
    Run,
    assert_gradient_of_the_loss,
    assert_same_model,
)
from tests.support.kernel_backends import DEVICES, Backend
from tests.support.pairs import pairs
from tests.support.stored_scores import assert_stored, both_forms

HOST = Backend(HostDevice(), NUMPY_KERNELS)
BACKBONES = [
    "7x6x2,conv:5x3x3,relu,pool:2",
    "7x6x2,conv:18x3x2:s2,tanh,conv:3x2x2:d2,selu",
    "6x9x1,avgpool:2x3,conv:4x3x3:valid,sigmoid",
    "8x8x3,conv:4x3x3:s3:d2,conv:6x1x1,relu,max",
    "1x5x3,lstm:7",
    "1x6x2,conv1d:4x3,tanh,lstm:18,lstm:5,last",
    "1x7x1,embed:6x18,conv1d:18x3,add:1,tanh,max",
    "1x5x1,embed:9x3,lstm:7,last",
    "1x11x1,embed:7x4,conv1d:5x3:s2:d2,relu,conv1d:4x2:valid,mean",
    "1x11x3,conv1d:17x4,relu,pool:1x2,conv1d:5x3:d2:valid,mean",
    "1x5x3,gru:7",
    "1x6x2,conv1d:4x3,tanh,gru:18,gru:5,last",
    "1x6x2,conv1d:4x3,tanh,lstm:5:both,gru:3:both,last",
    "4x3x2,conv:2x3x3,add:1,tanh,conv:5x3x3,tanh,conv:5x3x3,conv:5x1x1,add:2,selu,add:3,relu",
    "4x3x2,norm,conv:34x3x3,norm,selu,conv:34x3x3,norm,add:3,relu,pool:2,norm",
    "1x5x1,embed:9x18,norm,lstm:18,norm,tanh",
    "1x8x1,embed:9x3,gru:5:both,lstm:7:both",
    "1x8x1,embed:9x3,lstm:18:both,gru:4:both,last",
]
INFINITE = [  # large inputs; gates and normalised values become nan
    "1x6x2,conv1d:4x3,lstm:7",
    "1x6x2,conv1d:4x3,gru:7",
    "1x6x2,conv1d:4x3,norm,tanh",
]
evaluates = pytest.mark.no_own_indices  # those of training, and of `network.evaluate`


@pytest.mark.parametrize("backbone", BACKBONES)
def test_gradients_are_finite_differences_of_the_loss(backbone):
    kinds = {"hidden": (7,), "backbone": backbone, "dtype": np.float64}
    assert_gradient_of_the_loss(Run(HOST, "softmax", "tanh", **kinds))


@pairs(device_kernels=DEVICES, backbone=BACKBONES)
def test_every_device_trains_as_the_reference_in_double(device_kernels, backbone):
    kinds = {"hidden": (7,), "backbone": backbone, "slots": 2}
    rough = Run(device_kernels, "softmax", "relu", **kinds)
    exact = Run(HOST, "softmax", "relu", dtype=np.float64, **kinds)
    for run in (rough, exact):
        run.train_some(OPTIMIZERS["adam"])
    assert_same_model(rough, exact, atol=1e-3)


@pytest.mark.parametrize("kernels", [NUMPY_KERNELS, embedding])
def test_numbers_that_are_no_ids_have_no_vector(kernels):
    x = np.array([[0, 1, 2, 3, -1, np.nan]], np.float32)
    vectors, out = np.arange(1, 7, dtype=np.float32).reshape(3, 2), np.full((1, 12), 9, np.float32)
    kernels.look_up(x, vectors, out)
    assert out.reshape(6, 2).tolist() == [[0, 0], [3, 4], [5, 6], *3 * [[0, 0]]]


def test_the_steps_of_padding_are_those_in_front(device_kernels):
    """All of them, some, none, and none because a value is not finite."""
    x, starts = np.zeros((4, 3, 2), np.float32), np.full(4, 9, np.float32)
    x[1, 1, 1], x[2, 0], x[3, 0, 1] = 5, 6, np.nan
    device_kernels.first_steps(x, starts)
    assert starts.tolist() == [3, 1, 0, 0]
    numbers, out = np.arange(24, dtype=np.float32).reshape(4, 3, 2), np.zeros_like(x)
    device_kernels.reverse_steps(starts, numbers, out)
    orders = [[2, 1, 0], [0, 2, 1], *2 * [[2, 1, 0]]]
    for each, order, found in zip(numbers, orders, out, strict=True):
        assert (found == each[order]).all()
    gates = np.zeros((3, 4, 2), np.float32)
    device_kernels.set_in_padding(starts, -7.0, gates)
    assert gates[:, :, 0].T.tolist() == [[-7, -7, -7], [-7, 0, 0], *2 * [[0, 0, 0]]]


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_more_padding_does_not_change_the_scores_of_a_text(kind):
    """Otherwise they depend on the longest text, and on those in the same batch."""
    layers = f"embed:9x3,{kind}:5:both,{kind}:4:both,last"
    short, long = (Run(HOST, backbone=f"1x{steps}x1,{layers}") for steps in (5, 9))
    long.inputs.dense[:], long.inputs.dense[:, 4:] = 0, short.inputs.dense
    rows = np.arange(short.rows)
    assert_allclose(long.scores(rows), short.scores(rows), rtol=0, atol=1e-6)
    assert_allclose(long.scores(rows[:1]), short.scores(rows)[:1], rtol=0, atol=1e-6)


def case(backbone, optimizer="adam", hidden=(24,), **keywords):
    return Case(
        "softmax", optimizer, hidden=hidden, backbone=backbone, leased=31, batch=4, **keywords
    )


@pairs(backbone=BACKBONES, optimizer=list(OPTIMIZERS), hidden=[(), (24,), (20, 12)])
def test_a_lease_trains_as_its_batches_on_the_reference(backbone, optimizer, hidden):
    fast, slow = (case(backbone, optimizer, hidden) for _ in range(2))
    start = fast.params.copy()
    fast.train(), slow.interpret()
    assert np.abs(slow.params - start).max() > 0.01  # it did train
    assert_allclose(fast.params, slow.params, rtol=0, atol=2e-5)
    assert_allclose(fast.totals, slow.totals, rtol=1e-4)
    for slot, other in zip(fast.slots, slow.slots, strict=True):
        assert_allclose(slot, other, rtol=1e-3, atol=2e-5)
    assert (fast.totals[ROWS], fast.totals[UPDATES]) == (31, 8)


@pairs(flip=[False, True], shift=[0, 2], dropout=[None, Dropout(0.4, 9)])
def test_a_lease_trains_on_augmented_pictures_as_the_reference(flip, shift, dropout):
    given = {"dropout": dropout, "augmentation": Augmentation((7, 6, 2), flip, shift, 9)}
    fast, slow = (case(BACKBONES[0], **given) for _ in range(2))
    fast.train(), slow.interpret()
    assert_allclose(fast.params, slow.params, rtol=0, atol=2e-5)


@evaluates
@pytest.mark.parametrize("backbone", BACKBONES[:2])
def test_a_lease_evaluates_as_the_reference(backbone):
    fast, slow = case(backbone), case(backbone)
    slow.executor().evaluate_batch(slow.inputs, slow.labels, slow.order, slow.loss, slow.totals)
    slow.totals[ROWS] = len(slow.order)
    for stored in both_forms(40, slow.classes):
        fast.totals[:] = 0
        assert_allclose(fast.evaluate(stored), slow.totals, rtol=1e-4)
        assert_stored(stored, slow.order, slow.scores())


def test_a_row_that_overflows_leaves_no_trace():
    """Its outputs are infinite, and 0 times an infinite value is nan."""
    run, clean = (case(BACKBONES[0], "sgd") for _ in "ab")
    run.inputs.dense[2] = np.float32(3e38)
    for each in run, clean:
        each.order = np.arange(4)
        each.train()
    assert run.totals[SKIPPED] == 1
    assert np.isfinite(run.params).all()
    assert np.abs(run.params - clean.params).max() < 0.3  # the means of three rows and of four


@pytest.mark.parametrize("backbone", INFINITE)
def test_a_sequence_that_overflows_leaves_no_trace(backbone):
    """Its gates are the sum of infinite values of both signs."""
    run = case(backbone, "sgd")
    run.inputs.dense[2] = np.float32(3e38)
    run.order = np.arange(4)
    run.train()
    assert run.totals[SKIPPED] == 1
    assert np.isfinite(run.params).all()


@pairs(device_kernels=DEVICES, backbone=[BACKBONES[0], *INFINITE])
def test_a_row_that_overflows_leaves_no_trace_on_a_device(device_kernels, backbone):
    run = Run(device_kernels, hidden=(7,), backbone=backbone)
    run.inputs.dense[2] = np.float32(3e38)
    run.train(np.arange(4), SGD, PLAIN)
    assert run.totals[SKIPPED] == 1
    assert np.isfinite(run.params).all()


@pairs(device_kernels=DEVICES, backbone=[each for each in BACKBONES if "conv" in each])
def test_patches_of_a_few_rows_at_a_time_have_the_same_gradients(
    device_kernels, backbone, monkeypatch
):
    whole, parts = (Run(device_kernels, hidden=(7,), backbone=backbone) for _ in "ab")
    whole.train_some(OPTIMIZERS["sgd"])
    monkeypatch.setattr("hogbatch.kernels.backbone_layers.PATCH_VALUES", 2000)  # two rows, or a few
    parts.train_some(OPTIMIZERS["sgd"])
    assert_same_model(parts, whole)


def test_a_lease_ends_between_two_batches_when_it_is_revoked():
    revoked = case(BACKBONES[0])
    start = revoked.params.copy()
    revoked.train(fence=np.full(8, 6))
    assert (revoked.params == start).all() and revoked.totals[ROWS] == 0


@evaluates
@pytest.mark.parametrize("backbone", [BACKBONES[0], BACKBONES[5], BACKBONES[-1]])
def test_a_revoked_evaluation_compiles_its_kernels(backbone, monkeypatch):
    """Otherwise the first evaluation of a run would take seconds more than its lease allows."""
    run, called = case(backbone), []
    dense = cpu_backbone.evaluate_dense

    def recorded(model, x, labels, rows, *rest):
        called.append(len(rows))
        dense(model, x, labels, rows, *rest)

    monkeypatch.setattr(cpu_backbone, "evaluate_dense", recorded)
    arguments = run.model(), *run.rows, run.order, run.lease(4), np.full(8, 6), run.totals
    run.loop.evaluate(*arguments, both_forms(40, run.classes)[0])
    assert called == [0] and not run.totals.any()


@evaluates
def test_a_thread_grows_its_arrays_for_larger_batches():
    small, large = case(BACKBONES[0]), case(BACKBONES[0])
    loop = small.loop
    for run, batches in ((small, (2, 8, 3)), (large, (8,))):
        for batch in batches:
            arguments = run.model(), *run.rows, run.order, run.lease(batch)
            run.totals[:] = 0
            loop.evaluate(*arguments, run.fence, run.totals, both_forms(40, run.classes)[0])
    assert_allclose(small.totals, large.totals, rtol=1e-5)
