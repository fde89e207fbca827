"""Cases of a test with several parameters, in which every pair of values occurs."""

from itertools import combinations, product

import pytest

FIXTURES = {"kernels", "device_kernels"}  # axes that are the parameters of these fixtures


def covering(*sizes):
    """Yield few tuples of numbers below `sizes`; every pair of two places occurs in one.

    Such a covering array is made greedily: the next tuple has the most missing pairs.
    """
    pairs_of = {case: set(combinations(enumerate(case), 2)) for case in product(*map(range, sizes))}
    missing = set().union(*pairs_of.values())
    while missing:
        best = max(pairs_of, key=lambda case: len(pairs_of[case] & missing))
        missing -= pairs_of[best]
        yield best


def pairs(**axes):
    """Parametrize a test by a covering array of the values of two or more axes.

    An axis is a list of values, or a dictionary of values by name.
    """
    named = [
        list(axis.items()) if isinstance(axis, dict) else [(str(value), value) for value in axis]
        for axis in axes.values()
    ]
    cases = []
    for case in covering(*map(len, named)):
        chosen = (axis[number] for axis, number in zip(named, case, strict=True))
        names, values = zip(*chosen, strict=True)
        marks = [pytest.mark.gpu] if "gpu" in names else []
        cases.append(pytest.param(*values, id="-".join(names), marks=marks))
    return pytest.mark.parametrize(list(axes), cases, indirect=sorted(FIXTURES & axes.keys()))
