"""Random changes of JSON and of arrays, to values that break a program that trusts its files."""

import copy
from random import Random

import numpy as np

DEEP = "\0deep"  # stands for lists in lists, which json.dumps cannot write
DEEP_JSON = "[" * 50_000 + "]" * 50_000
WHOLE = (0, -1, 1, 2, 699, 5000, 2**31 - 1, 2**31, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, 10**30)
REAL = (0.0, -1.0, 0.5, 1e-300, 5e-324, 1e30, 1e308, float("nan"), float("inf"), -float("inf"))
SINGLE = (0.0, -1.0, 0.5, 1e-45, 3e38, float("nan"), float("inf"), -float("inf"))
TEXT = ("", "x", "0", "-1", "\ud800", "\0", "a" * 5000, "None", "../..", "text", "linear", "int64")
OTHER = (None, True, False, [], {}, [0], [[]], {"x": 0}, DEEP, *WHOLE, *REAL, *TEXT)
DTYPES = ("i1", "i2", "i4", "i8", "u1", "u8", "f2", "f4", "f8", ">i4", ">i8", ">f4", ">f8", "?")
DTYPES += ("c8", "S3", "U2", "M8[s]", "m8[s]", "V4", "i4,f4")


def places(tree, path=()):
    """The paths of all nodes of JSON."""
    yield path
    items = tree.items() if isinstance(tree, dict) else ()
    for key, each in enumerate(tree) if isinstance(tree, list) else items:
        yield from places(each, (*path, key))


def changed_json(tree, random: Random):
    """A copy of JSON in which one node is another one, is missing, or occurs twice."""
    tree = [copy.deepcopy(tree)]
    found = [path for path in places(tree) if path]
    *path, key = random.choice(found)
    parent = tree
    for each in path:
        parent = parent[each]
    match random.randrange(8):
        case 0 if path:
            del parent[key]
        case 1 if isinstance(parent, list) and path:
            parent.insert(key, copy.deepcopy(parent[key]))
        case 1 if path:
            parent[random.choice(TEXT)] = parent.pop(key)
        case 2:
            donor = tree
            for each in random.choice(found):
                donor = donor[each]
            parent[key] = copy.deepcopy(donor)
        case _:
            parent[key] = changed_value(parent[key], random)
    return tree[0] if tree else None


def changed_value(value, random: Random):
    """Another value, mostly of the same type."""
    if random.random() < 0.3:
        return random.choice(OTHER)
    match value:
        case bool():
            return not value
        case int():
            return random.choice((*WHOLE, value + 1, value - 1, -value, 2 * value))
        case float():
            return random.choice((*REAL, -value, 2 * value, value + 1e-3))
        case str():
            return random.choice((*TEXT, value + "x", value[1:], value.upper()))
        case list():
            return random.choice(([], value[:-1], value[::-1], value * 2, [*value, None]))
        case dict():
            return random.choice(({}, value | {"x": 0}, list(value), list(value.items())))
    return random.choice(OTHER)


def changed_array(array, random: Random):
    """A copy of an array with other cells, another length, shape or dtype."""
    array = np.array(array)
    if array.dtype.kind not in "biuf" or not array.ndim:  # it is another one already
        return array
    with np.errstate(all="ignore"):
        return _changed(array, random)


def _changed(array, random: Random):
    match random.randrange(10):
        case 0:
            dtype = np.dtype(random.choice(DTYPES))
            return np.zeros(array.shape, dtype) if dtype.kind == "V" else array.astype(dtype)
        case 1:
            return random.choice((array[:-1], array[1:], array[:0], np.append(array, array[-1:])))
        case 2:
            shapes = (array[:, None], array[None], np.array(array.sum(), array.dtype))
            return random.choice(shapes) if array.ndim == 1 else array.T
        case 3:
            return random.choice((array[::-1], np.sort(array), np.concatenate([array] * 2)))
        case 4 if array.size:
            return np.full_like(array, _cell(array, random))
    if array.size:
        for _ in range(random.choice((1, 1, 2, 5))):
            array.flat[random.randrange(array.size)] = _cell(array, random)
    return array


def _cell(array, random: Random):
    if array.dtype.kind not in "iu":
        return random.choice(SINGLE if array.dtype.itemsize <= 4 else REAL)
    limits, size = np.iinfo(array.dtype), len(array)
    extreme = (*WHOLE, size, size - 1, size + 1, limits.min, limits.max, int(array.flat[0]))
    return random.choice([each for each in extreme if limits.min <= each <= limits.max])
