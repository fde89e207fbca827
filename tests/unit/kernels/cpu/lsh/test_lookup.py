import numpy as np
import pytest
from numpy.testing import assert_allclose

from hogbatch.config.lsh import parse
from hogbatch.kernels.cpu.lsh.functions import FAMILIES, draw
from hogbatch.kernels.cpu.lsh.hashing import hash_rows
from hogbatch.kernels.cpu.lsh.lookup import Lookup


def numbers(*shape, seed):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.mark.parametrize("fan_in", [40, 64])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_is_scored_for_all_neurons_in_its_buckets(family, fan_in):
    weights, bias, x = numbers(70, fan_in, seed=0), numbers(70, seed=1), numbers(5, fan_in, seed=2)
    lsh = parse(f"{family}:K=2,L=3,bits=4,bucket=70", 70, 6)
    functions = draw(FAMILIES[family], fan_in, 2, 3, 4, 6)
    of_neurons, of_rows = np.empty((70, 3), np.int32), np.empty((5, 3), np.int32)
    hash_rows(functions, weights, of_neurons)
    hash_rows(functions, x, of_rows)
    sizes = []
    for row, (found, scores) in enumerate(Lookup(weights, bias, lsh).scores(x)):
        shared = np.flatnonzero((of_neurons == of_rows[row]).any(axis=1))
        assert sorted(found) == shared.tolist()
        assert_allclose(scores, weights[found] @ x[row] + bias[found], rtol=1e-4, atol=1e-5)
        sizes.append(len(found))
    assert 0 < sum(sizes) < 5 * 70


def test_full_buckets_keep_their_capacity():
    weights = np.ones((50, 16), np.float32)
    lsh = parse("simhash:K=4,L=1,bits=4,bucket=7,insertion=reservoir", 50, 0)
    ((found, scores),) = Lookup(weights, np.arange(50, dtype=np.float32), lsh).scores(weights[:1])
    assert len(set(found)) == 7
    assert_allclose(scores, found + 16)
