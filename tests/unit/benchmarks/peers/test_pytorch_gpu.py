"""The settings and the checks of the peer, without PyTorch."""

import subprocess
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.peers import pytorch_gpu
from benchmarks.peers.contract import Rows
from benchmarks.peers.pytorch_gpu import BATCHES, PEER, objection


def test_no_batch_of_the_grid_is_larger_than_the_set(signs):
    assert {each["batch"] for each in PEER.grid(signs)} == {64, 256}
    many = replace(signs, train=Rows(np.zeros((5000, 1), np.float32), np.zeros(5000, np.float32)))
    assert {each["batch"] for each in PEER.grid(many)} == set(BATCHES)


@pytest.mark.parametrize(
    ("code", "said", "objected"),
    [
        (0, "2.9 2\n", None),
        (0, "2.9 1\n", "torch 2.9 cannot use GPU 1: it finds 1 GPUs"),
        (1, "", "torch cannot be imported: ImportError: no cublas"),
    ],
)
def test_why_pytorch_cannot_train_is_one_sentence(code, said, objected, monkeypatch):
    monkeypatch.setattr(pytorch_gpu, "available", lambda peer: "2.9")
    answer = SimpleNamespace(
        returncode=code, stdout=said, stderr="Traceback\nImportError: no cublas"
    )
    monkeypatch.setattr(subprocess, "run", lambda *command, **given: answer)
    assert objection("1") == objected


def test_without_torch_nobody_is_asked(monkeypatch):
    monkeypatch.setattr(pytorch_gpu, "available", lambda peer: None)
    assert objection("0") == "torch is not installed"
