from collections import Counter
from itertools import chain, pairwise
from math import prod

from hypothesis import given, strategies as st

from hogbatch.store.layout import LANES, LINE, PAGE, arrange, stored_width, tensor_offsets
from tests.support.property_tests import max_examples

shapes = st.lists(st.integers(0, 40), max_size=3).map(tuple)
arrays = st.dictionaries(
    st.text(min_size=1, max_size=5),
    st.tuples(st.sampled_from(["<f4", "<i4", "<i8", "u1"]), shapes),
    max_size=8,
)


def distinct(names):
    """Whether no name occurs twice."""
    return all(count == 1 for count in Counter(names).values())


few = max_examples(60)


@few
@given(st.lists(arrays, max_size=3).filter(lambda groups: distinct(chain(*groups))))
def test_fields_never_overlap_are_aligned_and_lie_inside(groups):
    layout = arrange(*groups)
    wanted = {name: array for group in groups for name, array in group.items()}
    assert {f.name: (f.dtype, f.shape) for f in layout.fields} == wanted
    assert all(before.end <= after.offset for before, after in pairwise(layout.fields))
    assert all(field.offset % LINE == 0 for field in layout.fields)
    assert all(0 <= field.offset <= field.end <= layout.size for field in layout.fields)
    assert layout.size % PAGE == 0 and layout.size > 0


@few
@given(st.integers(1, 10**6))
def test_a_stored_width_is_the_least_one_that_holds_the_real_one(width):
    stored = stored_width(width)
    choices = (1, 2, 4, 8, -(-width // LANES) * LANES)
    assert stored == min(choice for choice in choices if choice >= width)


@few
@given(st.lists(shapes, max_size=10))
def test_tensors_never_overlap_are_aligned_and_lie_inside(tensors):
    offsets, total = tensor_offsets(tensors)
    ends = [offset + prod(shape) for offset, shape in zip(offsets, tensors, strict=True)]
    assert all(end <= start for end, start in zip(ends, [*offsets[1:], total], strict=False))
    assert all(offset % LANES == 0 for offset in [*offsets, total])
    assert total < sum(prod(shape) + LANES for shape in tensors) + 1
