"""Matrix products, plain or with an epilogue (bias, ReLU, bias gradient), by cuBLASLt.

CuPy refuses matrix products while a CUDA graph is captured (cupy/cupy#6290), and without a graph
the launch overhead dominates a training step. So cuBLASLt is called through its C interface.

A product is planned when it first occurs: cuBLASLt proposes algorithms for the shapes, the types,
the alignment and the epilogue, the most promising one first. The first is used, and in a step that
will be captured, the fastest: to time all of them takes as long as hundreds of products, some 40 ms
for a step. cuBLASLt may have none for an epilogue. Then `multiply_fused` returns False, also the
next time, and the caller uses a plain product and separate kernels instead.

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

from hogbatch.errors import DeviceError

# cublasComputeType_t: the type that operands are rounded to; sums are always float32. Operands of
# bfloat16 are stored in it.
COMPUTE_TYPES = {"float32": 68, "tf32": 77, "bfloat16": 68}
DATA_TYPES = {"float32": 0, "uint16": 14}  # cudaDataType_t by dtype; uint16 holds bfloat16
WORKSPACE_BYTES = 32 << 20  # NVIDIA's recommendation for Hopper; more than our products need

# cublasLtEpilogue_t
_PLAIN = 1  # only the product: CUBLASLT_EPILOGUE_DEFAULT
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
_ALLOCATION_FAILED = 3  # cublasStatus_t


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
    """The key of a plan: op(left) @ op(right), column-major, in cuBLASLt's order."""

    epilogue: int
    transposed: tuple[bool, bool]
    add: bool  # to the previous result
    shapes: tuple[tuple[int, ...], ...]  # of left, right, the result, and the epilogue's array
    types: tuple[str, ...]
    alignments: tuple[int, ...]  # bytes


class _Plan(NamedTuple):
    """The descriptors of a product, and the algorithm for it."""

    description: ctypes.c_void_p
    layouts: tuple[ctypes.c_void_p, ...]  # of a, b, the result
    found: _Heuristic
    timed: bool  # False: it is the first proposal, and others may be faster


class CublasLt:
    """A cuBLASLt handle with its own workspace, for one thread; uses the thread's current stream.

    While `repeated` is true, the algorithms of all products are timed, because they will be
    repeated often. Raises DeviceError if the library cannot be loaded.
    """

    def __init__(self, precision: str) -> None:
        self.repeated = False
        self._precision = precision
        self._plans: OrderedDict[_Product, _Plan | str] = OrderedDict()  # str: why it has none
        self._keep_nan: dict[bytes, bool] = {}  # by algorithm
        self._handle = ctypes.c_void_p()
        try:
            self._library = ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("cublasLt").abs_path)
            self._call("cublasLtCreate", ctypes.byref(self._handle))
        except (OSError, RuntimeError) as error:  # pathfinder raises RuntimeErrors
            raise DeviceError(f"cuBLASLt cannot be loaded: {error}") from error
        self._workspace = cupy.empty(WORKSPACE_BYTES, np.uint8)

    def multiply(
        self,
        a: cupy.ndarray,
        b: cupy.ndarray,
        out: cupy.ndarray,
        transpose_a: bool = False,
        transpose_b: bool = False,
        fraction: float = 1.0,
        add: bool = False,
    ) -> None:
        """out[M, N] = fraction * op(a) @ op(b), plus out if `add`; op transposes if requested.

        All arrays are C-contiguous, and none is empty. a and b are both float32, or both bfloat16;
        `out` is either. Raises DeviceError if the product fails, or has no algorithm.
        """
        transposed = transpose_b, transpose_a
        if reason := self._compute(_PLAIN, transposed, (b, a, out), fraction, add):
            factors = f"{a.shape} and {b.shape} in {self._precision}"
            raise DeviceError(f"cuBLASLt cannot multiply matrices of shapes {factors}: {reason}")

    def multiply_fused(
        self,
        epilogue: int,
        a: cupy.ndarray,
        b: cupy.ndarray,
        out: cupy.ndarray,
        vector: cupy.ndarray,
        transpose_a: bool = False,
        transpose_b: bool = False,
    ) -> bool:
        """out[M, N] = epilogue(op(a) @ op(b)), with arrays as for `multiply`.

        `vector` is the bias[N], or receives the bias gradient[N]; its type is that of `out`.
        Returns False if cuBLASLt has no such product; then the contents of `out` and `vector` are
        undefined.
        """
        return not self._compute(epilogue, (transpose_b, transpose_a), (b, a, out, vector))

    def _compute(self, epilogue, transposed, arrays, fraction=1.0, add=False) -> str:
        """Queue a product, planned if it is new; returns why it is refused, or an empty string.

        cuBLASLt is column-major and sees every array transposed, so it computes out.T from
        `arrays`: b, a, out, and the vector of an epilogue.
        """
        shapes, types, alignments = zip(
            *((each.shape, each.dtype.name, _alignment(each)) for each in arrays), strict=True
        )
        product = _Product(epilogue, transposed, add, shapes, types, alignments)
        try:
            plan = self._plans.get(product)
            if plan is None or (self.repeated and isinstance(plan, _Plan) and not plan.timed):
                plan = self._plan(product, arrays)
                self._store(product, plan)
            self._plans.move_to_end(product)
            if isinstance(plan, str):
                return plan
            self._run(plan, arrays, fraction, add)
            return ""
        except _Refused as refused:
            self._store(product, str(refused))
            logging.debug("cuBLASLt: %s of %s: %s", _NAMES[epilogue], product[1:], refused)
            return str(refused)

    def _store(self, product: _Product, plan: _Plan | str) -> None:
        self._destroy(self._plans.get(product))
        self._plans[product] = plan
        if len(self._plans) > MAX_PLANS:
            self._destroy(self._plans.popitem(last=False)[1])

    def _destroy(self, plan: _Plan | str | None) -> None:
        if isinstance(plan, _Plan):
            self._call("cublasLtMatmulDescDestroy", plan.description)
            for layout in plan.layouts:
                self._call("cublasLtMatrixLayoutDestroy", layout)

    def _plan(self, product: _Product, arrays) -> _Plan:
        """Choose the first algorithm that keeps NaN, or if products are `repeated` the fastest.

        Runs algorithms and waits for the device. Runs overwrite the result, so the first proposal
        is used if it is added to.
        """
        description = ctypes.c_void_p()
        compute = COMPUTE_TYPES[self._precision]
        self._call("cublasLtMatmulDescCreate", ctypes.byref(description), compute, _FLOAT32)
        for attribute, value in (
            (_TRANSPOSE_A, ctypes.c_int32(product.transposed[0])),  # cublasOperation_t
            (_TRANSPOSE_B, ctypes.c_int32(product.transposed[1])),
            (_EPILOGUE, ctypes.c_uint32(product.epilogue)),
        ):
            self._set("cublasLtMatmulDescSetAttribute", description, attribute, value)
        self._set_vector(description, arrays)  # proposals depend on its alignment
        layouts = tuple(map(self._layout, arrays[:3]))
        proposed = self._propose(description, layouts, product.alignments)
        timed = self.repeated or product.add or len(proposed) == 1
        plans = (_Plan(description, layouts, each, timed) for each in proposed)
        if product.epilogue == RELU_BIAS:
            plans = (plan for plan in plans if self._keeps_nan(plan, arrays))
        if self.repeated and not product.add:
            plan = min(plans, key=lambda plan: self._milliseconds(plan, arrays), default=None)
        else:
            plan = next(plans, None)
        if plan is None:
            raise _Refused("its ReLU does not keep NaN")
        return plan

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

    def _milliseconds(self, plan: _Plan, arrays) -> float:
        """The time of some products; infinite if the algorithm fails. Overwrites the result.

        They are captured, because Python launches small products more slowly than they run.
        """
        try:
            self._run(plan, arrays)  # loads the kernel
        except _Refused:
            return math.inf
        stream = cupy.cuda.get_current_stream()
        stream.begin_capture()
        for _ in range(TIMED_CALLS):
            self._run(plan, arrays)
        graph = stream.end_capture()
        graph.launch()
        start, end = (cupy.cuda.Event(block=True) for _ in range(2))
        start.record(stream)
        graph.launch()
        end.record(stream)
        end.synchronize()
        return cupy.cuda.get_elapsed_time(start, end)

    def _keeps_nan(self, plan: _Plan, arrays) -> bool:
        """Whether the ReLU of this algorithm returns NaN for NaN; overwrites the result.

        max(NaN, 0) is 0 in CUDA's fmaxf. The loss would then not see that a row is invalid, and the
        weights would become NaN. The documentation does not say what cuBLASLt does, and each
        algorithm may differ.
        """
        algorithm = bytes(plan.found.algorithm)
        if algorithm not in self._keep_nan:
            self._keep_nan[algorithm] = self._returns_nan(plan, arrays)
        return self._keep_nan[algorithm]

    def _returns_nan(self, plan: _Plan, arrays) -> bool:
        """Run a product with a bias of NaN."""
        *matrices, vector = arrays
        aligned = -(-vector.size // _LARGEST_ALIGNMENT) * _LARGEST_ALIGNMENT
        nan = np.nan if vector.dtype == np.float32 else _BFLOAT16_NAN
        self._run(plan, (*matrices, cupy.full(aligned, nan, vector.dtype)[: vector.size]))
        row = np.empty(matrices[2].shape[1], matrices[2].dtype)
        stream = cupy.cuda.get_current_stream()
        matrices[2][0].get(out=row, blocking=False)
        stream.record(cupy.cuda.Event(block=True)).synchronize()  # sleeps instead of spinning
        found = np.isnan(row) if row.dtype == np.float32 else row & 0x7FFF > _BFLOAT16_INFINITY
        return bool(found.all())

    def _run(self, plan: _Plan, arrays, fraction: float = 1.0, add: bool = False) -> None:
        self._set_vector(plan.description, arrays)
        left, right, out = map(_pointer, arrays[:3])
        alpha, beta = ctypes.c_float(fraction), ctypes.c_float(add)
        a, b, c = plan.layouts
        stream = ctypes.c_void_p(cupy.cuda.get_current_stream().ptr)
        self._call(
            *("cublasLtMatmul", self._handle, plan.description, ctypes.byref(alpha)),
            *(left, a, right, b, ctypes.byref(beta), out, c, out, c),
            *(ctypes.byref(plan.found), _pointer(self._workspace)),
            *(ctypes.c_size_t(WORKSPACE_BYTES), stream),
        )

    def _set_vector(self, description, arrays) -> None:
        for vector in arrays[3:]:  # of an epilogue
            setter = "cublasLtMatmulDescSetAttribute"
            self._set(setter, description, _BIAS_POINTER, _pointer(vector))

    def _set(self, name: str, owner, attribute: int, value) -> None:
        self._call(
            name, owner, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))
        )

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status == _ALLOCATION_FAILED:
            raise MemoryError(f"{name}: cuBLASLt could not allocate memory")
        if status != 0:
            raise _Refused(f"{name} failed with status {status}")


def _pointer(array: cupy.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.data.ptr)


def _alignment(array: cupy.ndarray) -> int:
    """The largest power of two, up to 256, that divides the address of `array`."""
    return min(_LARGEST_ALIGNMENT, array.data.ptr & -array.data.ptr)
