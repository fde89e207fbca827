from itertools import combinations, product

import pytest

from tests.support.pairs import covering, pairs


@pytest.mark.parametrize(
    ("sizes", "most"),
    [((1, 1), 1), ((4, 3), 12), ((2, 2, 2), 4), ((3, 6, 4, 2), 24), ((4, 6, 4, 4, 3), 26)],
    ids=str,
)
def test_every_pair_of_values_occurs_in_few_cases(sizes, most):
    cases = list(covering(*sizes))
    assert len(cases) <= most
    for one, other in combinations(range(len(sizes)), 2):
        found = {(case[one], case[other]) for case in cases}
        assert found == set(product(range(sizes[one]), range(sizes[other])))


def test_cases_have_the_names_and_values_of_their_axes():
    mark = pairs(kernels=["cpu", "gpu"], loss={"hinge": 2}, width=[1, 17])
    names, cases = mark.args
    assert names == ["kernels", "loss", "width"] and mark.kwargs == {"indirect": ["kernels"]}
    assert {case.id: case.values for case in cases} == {
        f"{backend}-hinge-{width}": (backend, 2, width)
        for backend in ("cpu", "gpu")
        for width in (1, 17)
    }
    assert all(bool(case.marks) == case.id.startswith("gpu") for case in cases)
