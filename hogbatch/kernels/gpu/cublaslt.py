"""Matrix products with an epilogue (bias, ReLU, bias gradient) by cuBLASLt.

A product is planned when it first occurs: cuBLASLt proposes algorithms for the shapes, the types,
the alignment and the epilogue, and the fastest is used. It may have none. Then `multiply` returns
False, also the next time, and the caller uses a plain product and separate kernels instead.

Nothing here allocates device memory or waits while a step is captured, because every step runs
once before it is captured.
"""

import ctypes
import logging
import math
from collections import OrderedDict
from typing import NamedTuple

import cupy
import numpy as np
from cuda import pathfinder

from hogbatch.kernels.gpu.cublas import (
    ALLOCATION_FAILED,
    COMPUTE_TYPES,
    DATA_TYPES,
    WORKSPACE_BYTES,
    operation,
    pointer,
)

# cublasLtEpilogue_t
PLAIN = 1  # only the product: CUBLASLT_EPILOGUE_DEFAULT
BIAS = 4  # add bias[H] to every row
RELU_BIAS = 6
# The bias gradient: the sum of the left factor over the inner dimension. cuBLASLt sees
# out[K, H] = x.T @ grad transposed, out.T[H, K] = grad.T @ x: its left factor, A, is the gradient.
BGRADA = 256
_NAMES = {1: "PLAIN", 4: "BIAS", 6: "RELU_BIAS", 256: "BGRADA"}

MAX_PLANS = 4096  # a step has three for each layer; batches have few different sizes
PROPOSALS = 8  # algorithms that are timed: the first proposal is often not the fastest
TIMED_CALLS = 8  # of each algorithm

_TRANSPOSE_A, _TRANSPOSE_B, _EPILOGUE, _BIAS_POINTER = 3, 4, 7, 8  # cublasLtMatmulDescAttributes_t
_MAX_WORKSPACE, _MIN_ALIGNMENTS = 1, (5, 6, 7, 8)  # cublasLtMatmulPreferenceAttributes_t; A B C D
_LARGEST_ALIGNMENT = 256  # bytes; more does not matter to cuBLASLt
_BFLOAT16_INFINITY, _BFLOAT16_NAN = 0x7F80, 0x7FC0
_FLOAT32 = 0  # CUDA_R_32F, the type of alpha and beta


class _Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class _Refused(RuntimeError):
    """cuBLASLt does not compute this product."""


class _Product(NamedTuple):
    """The key of a plan: op(a)[M, K] @ op(b)[K, N], column-major, in cuBLASLt's order."""

    epilogue: int
    sizes: tuple[int, int, int]  # M, N, K
    transposed: tuple[bool, bool]
    types: tuple[int, int]  # cudaDataType_t of the factors, and of the result
    alignments: tuple[int, ...]  # bytes, of a, b, the result, and the epilogue's arrays


class _Plan(NamedTuple):
    """The descriptors of a product, and the algorithm for it."""

    description: ctypes.c_void_p
    layouts: tuple[ctypes.c_void_p, ...]  # of a, b, the result
    found: _Heuristic


class CublasLt:
    """A cuBLASLt handle, for one thread; uses the thread's current stream.

    `workspace` is device memory of WORKSPACE_BYTES, which nothing else uses in that stream at the
    same time. Raises OSError or RuntimeError if the library cannot be loaded.
    """

    def __init__(self, precision: str, workspace: cupy.ndarray) -> None:
        self._compute = COMPUTE_TYPES[precision]
        self._workspace = workspace
        self._library = ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("cublasLt").abs_path)
        self._plans: OrderedDict[_Product, _Plan | None] = OrderedDict()  # None: not supported
        self._keep_nan: dict[bytes, bool] = {}  # by algorithm
        self._handle = ctypes.c_void_p()
        self._call("cublasLtCreate", ctypes.byref(self._handle))

    def multiply(
        self,
        epilogue: int,
        a: cupy.ndarray,
        b: cupy.ndarray,
        out: cupy.ndarray,
        transpose_a: bool = False,
        transpose_b: bool = False,
        vector: cupy.ndarray | None = None,
    ) -> bool:
        """out[M, N] = epilogue(op(a) @ op(b)); op transposes if requested. All are C-contiguous.

        `vector` is the bias[N], or receives the bias gradient[N]; its type is that of `out`.
        Returns False if cuBLASLt has no such product; then the contents of `out` and `vector` are
        undefined.
        """
        # cuBLASLt is column-major and sees every array transposed, so it computes out.T.
        arrays = b, a, out
        inner = a.shape[0] if transpose_a else a.shape[1]
        product = _Product(
            epilogue,
            (out.shape[1], out.shape[0], inner),
            (transpose_b, transpose_a),
            (DATA_TYPES[a.dtype.name], DATA_TYPES[out.dtype.name]),
            tuple(_alignment(each) for each in (*arrays, vector) if each is not None),
        )
        try:
            if product not in self._plans:
                self._store(product, self._plan(product, arrays, vector))
            self._plans.move_to_end(product)
            plan = self._plans[product]
            if plan is not None:
                self._run(plan, arrays, vector)
            return plan is not None
        except _Refused as refused:
            self._store(product, None)
            logging.debug("cuBLASLt: %s of %s: %s", _NAMES[epilogue], product[1:], refused)
            return False

    def _store(self, product: _Product, plan: _Plan | None) -> None:
        self._plans[product] = plan
        if len(self._plans) > MAX_PLANS:
            _, oldest = self._plans.popitem(last=False)
            if oldest is not None:
                self._destroy(oldest)

    def _destroy(self, plan: _Plan) -> None:
        self._call("cublasLtMatmulDescDestroy", plan.description)
        for layout in plan.layouts:
            self._call("cublasLtMatrixLayoutDestroy", layout)

    def _plan(self, product: _Product, arrays, vector) -> _Plan:
        """Choose the fastest algorithm that keeps NaN; runs them and waits for the device."""
        description = ctypes.c_void_p()
        self._call("cublasLtMatmulDescCreate", ctypes.byref(description), self._compute, _FLOAT32)
        for attribute, value in (
            (_TRANSPOSE_A, ctypes.c_int32(operation(product.transposed[0]))),
            (_TRANSPOSE_B, ctypes.c_int32(operation(product.transposed[1]))),
            (_EPILOGUE, ctypes.c_uint32(product.epilogue)),
        ):
            self._set("cublasLtMatmulDescSetAttribute", description, attribute, value)
        self._set_vector(description, vector)  # proposals depend on its alignment
        layouts = tuple(map(self._layout, arrays))
        proposed = self._propose(description, layouts, product.alignments)
        plans = [_Plan(description, layouts, each) for each in proposed]
        if product.epilogue == RELU_BIAS:
            plans = [plan for plan in plans if self._keeps_nan(plan, arrays, vector)]
            if not plans:
                raise _Refused("its ReLU does not keep NaN")
        if len(plans) == 1:
            return plans[0]
        return min(plans, key=lambda plan: self._milliseconds(plan, arrays, vector))

    def _layout(self, array: cupy.ndarray) -> ctypes.c_void_p:
        layout, (columns, rows) = ctypes.c_void_p(), array.shape
        sizes = ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows)
        kind = DATA_TYPES[array.dtype.name]
        self._call("cublasLtMatrixLayoutCreate", ctypes.byref(layout), kind, *sizes)
        return layout

    def _propose(self, description, layouts, alignments) -> list[_Heuristic]:
        """Algorithms, the one that cuBLASLt expects to be the fastest first."""
        a, b, out = layouts
        preference, count = ctypes.c_void_p(), ctypes.c_int(0)
        found = (_Heuristic * PROPOSALS)()
        self._call("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
        try:
            setter = "cublasLtMatmulPreferenceSetAttribute"
            self._set(setter, preference, _MAX_WORKSPACE, ctypes.c_uint64(WORKSPACE_BYTES))
            of_each = (*alignments[:3], alignments[2])  # C is D
            for attribute, alignment in zip(_MIN_ALIGNMENTS, of_each, strict=True):
                self._set(setter, preference, attribute, ctypes.c_uint32(alignment))
            self._call(
                *("cublasLtMatmulAlgoGetHeuristic", self._handle, description, a, b, out, out),
                *(preference, PROPOSALS, found, ctypes.byref(count)),
            )
        finally:
            self._call("cublasLtMatmulPreferenceDestroy", preference)
        usable = [each for each in found[: count.value] if each.state == 0]
        if not usable:
            raise _Refused("it has no algorithm")
        return usable

    def _milliseconds(self, plan: _Plan, arrays, vector) -> float:
        """The time of some products; infinite if the algorithm fails. Overwrites the result.

        They are captured, because Python launches small products more slowly than they run.
        """
        try:
            self._run(plan, arrays, vector)  # loads the kernel
        except _Refused:
            return math.inf
        stream = cupy.cuda.get_current_stream()
        stream.begin_capture()
        for _ in range(TIMED_CALLS):
            self._run(plan, arrays, vector)
        graph = stream.end_capture()
        graph.launch()
        start, end = (cupy.cuda.Event(block=True) for _ in range(2))
        start.record(stream)
        graph.launch()
        end.record(stream)
        end.synchronize()
        return cupy.cuda.get_elapsed_time(start, end)

    def _keeps_nan(self, plan: _Plan, arrays, vector) -> bool:
        """Whether the ReLU of this algorithm returns NaN for NaN; overwrites the result.

        max(NaN, 0) is 0 in CUDA's fmaxf. The loss would then not see that a row is invalid, and the
        weights would become NaN. The documentation does not say what cuBLASLt does, and each
        algorithm may differ.
        """
        algorithm = bytes(plan.found.algorithm)
        if algorithm not in self._keep_nan:
            self._keep_nan[algorithm] = self._returns_nan(plan, arrays, vector)
        return self._keep_nan[algorithm]

    def _returns_nan(self, plan: _Plan, arrays, vector) -> bool:
        """Run a product with a bias of NaN."""
        aligned = -(-vector.size // _LARGEST_ALIGNMENT) * _LARGEST_ALIGNMENT
        nan = np.nan if vector.dtype == np.float32 else _BFLOAT16_NAN
        self._run(plan, arrays, cupy.full(aligned, nan, vector.dtype)[: vector.size])
        row = np.empty(arrays[2].shape[1], arrays[2].dtype)
        stream = cupy.cuda.get_current_stream()
        arrays[2][0].get(out=row, blocking=False)
        stream.record(cupy.cuda.Event(block=True)).synchronize()  # sleeps instead of spinning
        found = np.isnan(row) if row.dtype == np.float32 else row & 0x7FFF > _BFLOAT16_INFINITY
        return bool(found.all())

    def _run(self, plan: _Plan, arrays, vector) -> None:
        left, right, out = map(pointer, arrays)
        self._set_vector(plan.description, vector)
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        a, b, c = plan.layouts
        self._call(
            *("cublasLtMatmul", self._handle, plan.description),
            *(ctypes.byref(one), left, a, right, b, ctypes.byref(zero), out, c, out, c),
            *(ctypes.byref(plan.found), pointer(self._workspace)),
            *(
                ctypes.c_size_t(WORKSPACE_BYTES),
                ctypes.c_void_p(cupy.cuda.get_current_stream().ptr),
            ),
        )

    def _set_vector(self, description, vector) -> None:
        if vector is not None:
            setter = "cublasLtMatmulDescSetAttribute"
            self._set(setter, description, _BIAS_POINTER, pointer(vector))

    def _set(self, name: str, owner, attribute: int, value) -> None:
        self._call(
            name, owner, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))
        )

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status == ALLOCATION_FAILED:
            raise MemoryError(f"{name}: cuBLASLt could not allocate memory")
        if status != 0:  # if the device has failed, the plain product raises an error
            raise _Refused(f"{name} returned {status}")


def _alignment(array: cupy.ndarray) -> int:
    """The largest power of two, up to 256, that divides the address of `array`."""
    return min(_LARGEST_ALIGNMENT, array.data.ptr & -array.data.ptr)
