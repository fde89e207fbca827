"""The stand-in for cuBLASLt: what it refuses, as documented, and the nodes of a graph."""

import ctypes
import importlib

import numpy as np
import pytest

SUCCESS, INVALID_VALUE, NOT_SUPPORTED = 0, 7, 15
DEFAULT, BIAS, BGRADA, BGRADB = 1, 4, 256, 512
M, N, K = 5, 3, 4
FLOAT32, FLOAT16 = 0, 2


class Product:
    """One product of cuBLASLt, computed with any arguments."""

    def __init__(self, cupy, stream):
        pathfinder = importlib.import_module("cuda.pathfinder")
        path = pathfinder.load_nvidia_dynamic_lib("cublasLt").abs_path
        self.library, self.handle, self.stream = ctypes.CDLL(path), ctypes.c_void_p(), stream
        assert self.library.cublasLtCreate(ctypes.byref(self.handle)) == SUCCESS
        self.workspace = cupy.empty(4096, np.uint8)
        self.there = {
            "a": cupy.ones((K, M), np.float32),  # column-major: [M, K]
            "b": cupy.ones((N, K), np.float32),
            "out": cupy.zeros((N, M), np.float32),
            "vector": cupy.full(M, 2, np.float32),
        }

    def address(self, name):
        return ctypes.c_void_p(self.there[name].data.ptr)

    def __call__(self, epilogue=DEFAULT, attributes=(), **options):
        """The status of the first call that fails, or of cublasLtMatmul."""
        transposed = options.get("transposed", (0, 0))
        values = {3: ctypes.c_int32(transposed[0]), 4: ctypes.c_int32(transposed[1])}
        values |= {7: ctypes.c_uint32(epilogue)}
        for attribute, value in dict(attributes).items():
            values[attribute] = self.address(value) if isinstance(value, str) else value
        description = self.create("MatmulDesc", 68, FLOAT32)
        for attribute, value in values.items():
            if status := self.set("MatmulDesc", description, attribute, value):
                return status
        layouts = self.layouts(**options)
        found, count = (ctypes.c_uint64 * 12)(), ctypes.c_int()
        status = self.library.cublasLtMatmulAlgoGetHeuristic(
            *(self.handle, description, *layouts, layouts[2], self.preference(**options)),
            *(1, ctypes.byref(found), ctypes.byref(count)),
        )
        return status or self.compute(description, layouts, found, **options)

    def create(self, what, *arguments):
        made = ctypes.c_void_p()
        create = getattr(self.library, f"cublasLt{what}Create")
        assert create(ctypes.byref(made), *arguments) == SUCCESS
        return made

    def set(self, what, owner, attribute, value):
        setter = getattr(self.library, f"cublasLt{what}SetAttribute")
        return setter(owner, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))

    def layouts(self, transposed=(0, 0), leading=(M, K, M), kind=FLOAT32, **_):
        a, b = (K, M) if transposed[0] else (M, K), (N, K) if transposed[1] else (K, N)
        return [
            self.create("MatrixLayout", kind, *map(ctypes.c_int64, (*shape, ld)))
            for shape, ld in zip((a, b, (M, N)), leading, strict=True)
        ]

    def preference(self, promised=16, **_):
        made = self.create("MatmulPreference")
        self.set("MatmulPreference", made, 1, ctypes.c_uint64(self.workspace.nbytes))
        for attribute in (5, 6, 7, 8):
            self.set("MatmulPreference", made, attribute, ctypes.c_uint32(promised))
        return made

    def compute(self, description, layouts, found, size=4096, **_):
        (a, b, c), out = layouts, self.address("out")
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        return self.library.cublasLtMatmul(
            *(self.handle, description, ctypes.byref(one), self.address("a"), a),
            *(self.address("b"), b, ctypes.byref(zero), out, c, out, c, ctypes.byref(found)),
            *(ctypes.c_void_p(self.workspace.data.ptr), ctypes.c_size_t(size)),
            ctypes.c_void_p(self.stream.ptr),
        )


TRANSPOSED = {"transposed": (1, 0), "leading": (K, K, M)}  # the first factor


@pytest.fixture
def product(cupy, stream):
    return Product(cupy, stream)


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"epilogue": BIAS}, INVALID_VALUE),  # no bias
        ({"leading": (M - 1, K, M)}, INVALID_VALUE),
        ({"attributes": {7: ctypes.c_uint64(1)}}, INVALID_VALUE),  # of 4 bytes
        ({"attributes": {99: ctypes.c_uint32(1)}}, INVALID_VALUE),
        ({"size": 100}, INVALID_VALUE),  # less workspace than the algorithm was chosen for
        ({"kind": FLOAT16}, NOT_SUPPORTED),
        ({"epilogue": 32}, NOT_SUPPORTED),  # GELU is not imitated
        ({"epilogue": BGRADA, "attributes": {8: "vector"}, **TRANSPOSED}, NOT_SUPPORTED),
        ({"epilogue": BGRADB, "attributes": {8: "vector"}}, NOT_SUPPORTED),
    ],
)
def test_what_the_documentation_excludes_is_refused(product, options, status):
    assert product(**options) == status


def test_an_algorithm_is_for_arrays_as_aligned_as_promised(cupy, product):
    product.there["out"] = cupy.zeros(N * M + 1, np.float32)[1:]
    assert product(promised=4) == SUCCESS
    assert product(promised=256) == INVALID_VALUE
