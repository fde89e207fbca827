"""Vector code for this host: vector widths, and the builder that generates micro-kernels.

A micro-kernel is LLVM IR generated at run time, as LIBXSMM generates machine code (Heinecke et al.
2016).
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import llvmlite.binding as llvm
from llvmlite import ir

from hogbatch.errors import UsageError
from hogbatch.jit import VECTOR_VARIABLE

FLOAT = ir.FloatType()
INT = ir.IntType(64)
INT32 = ir.IntType(32)
BYTE = ir.IntType(8)
POINTER = FLOAT.as_pointer()

Values = list[ir.Value]


def vector_width(forced: str, features: dict[str, bool]) -> int:
    """Floats in a vector: `forced` if given, else 16 with AVX-512, 8 with AVX2, 4 with NEON or SSE.

    A forced width above the host's is valid but slow, because LLVM splits the vectors.
    """
    if forced:
        if forced not in ("4", "8", "16"):
            raise UsageError(f"{VECTOR_VARIABLE} must be 4, 8 or 16; got {forced!r}")
        return int(forced)
    if features.get("avx512f"):
        return 16
    return 8 if features.get("avx2") else 4


def vector_registers(width: int, architecture: str) -> int:
    """Number of vector registers available to a micro-kernel."""
    return 32 if width == 16 or architecture.startswith(("aarch64", "arm64")) else 16


WIDTH = vector_width(os.environ.get(VECTOR_VARIABLE, ""), llvm.get_host_cpu_features())
REGISTERS = vector_registers(WIDTH, llvm.get_process_triple())
VECTOR = ir.VectorType(FLOAT, WIDTH)
ZERO = ir.Constant(VECTOR, [0.0] * WIDTH)


def number(value: int) -> ir.Constant:
    """`value` as an int64 constant."""
    return ir.Constant(INT, value)


def shuffle_mask(lanes: Sequence[int]) -> ir.Constant:
    """The mask of a shuffle: lane numbers; the lanes of the second operand start at WIDTH."""
    return ir.Constant(ir.VectorType(INT32, len(lanes)), list(lanes))


class FunctionBuilder:
    """Builds one function. Pointers are to floats, offsets count floats, loads may be unaligned."""

    def __init__(self, module: ir.Module, name: str, arguments: Sequence[ir.Type]) -> None:
        self.module = module
        self.function = ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), name)
        self.build = ir.IRBuilder(self.function.append_basic_block("entry"))

    def at(self, pointer: ir.Value, offset: ir.Value | int) -> ir.Value:
        return self.build.gep(pointer, [number(offset) if isinstance(offset, int) else offset])

    def times(self, factor: int, value: ir.Value) -> ir.Value:
        return self.build.mul(number(factor), value)

    def load(self, pointer: ir.Value, mask: ir.Value | None = None) -> ir.Value:
        """WIDTH floats from `pointer`; masked-out lanes are zero and are not read."""
        vectors = self.build.bitcast(pointer, VECTOR.as_pointer())
        if mask is None:
            return self.build.load(vectors, align=4)
        return self._call(
            "masked.load", VECTOR, [vectors, ir.Constant(INT32, 4), mask, ZERO], ".p0"
        )

    def store(self, value: ir.Value, pointer: ir.Value, mask: ir.Value | None = None) -> None:
        vectors = self.build.bitcast(pointer, value.type.as_pointer())
        if mask is None:
            self.build.store(value, vectors, align=4)
        else:
            arguments = [value, vectors, ir.Constant(INT32, 4), mask]
            self._call("masked.store", ir.VoidType(), arguments, ".p0")

    def broadcast(self, scalar: ir.Value) -> ir.Value:
        """`scalar` in every lane."""
        undefined = ir.Constant(ir.VectorType(scalar.type, WIDTH), ir.Undefined)
        one = self.build.insert_element(undefined, scalar, ir.Constant(INT32, 0))
        return self.build.shuffle_vector(one, undefined, shuffle_mask([0] * WIDTH))

    def lane_mask(self, lanes: ir.Value) -> ir.Value:
        """A mask that selects the first `lanes` lanes."""
        order = ir.Constant(ir.VectorType(INT, WIDTH), list(range(WIDTH)))
        return self.build.icmp_unsigned("<", order, self.broadcast(lanes))

    def mask_if(self, mask: ir.Value, yes: ir.Value) -> ir.Value:
        """`mask` if the scalar condition `yes` holds, else no lanes."""
        return self.build.and_(mask, self.broadcast(yes))

    def multiply_add(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        """x y + z, fused where the host supports it."""
        return self._call("fmuladd", VECTOR, [x, y, z])

    def maximum(self, floor: ir.Value, x: ir.Value) -> ir.Value:
        """max(floor, x); NaN in `x` stays NaN."""
        return self.build.select(self.build.fcmp_ordered(">", floor, x), floor, x)

    def sqrt(self, x: ir.Value) -> ir.Value:
        """The square root of each lane."""
        return self._call("sqrt", VECTOR, [x])

    def prefetch(self, pointer: ir.Value, write: bool = False) -> None:
        """Prefetch the cache line of `pointer` into L1; invalid addresses are ignored."""
        arguments = [
            self.build.bitcast(pointer, BYTE.as_pointer()),
            *(ir.Constant(INT32, hint) for hint in (int(write), 3, 1)),  # locality L1, data cache
        ]
        self._intrinsic("llvm.prefetch.p0", ir.VoidType(), arguments)

    def loop(
        self,
        start: ir.Value,
        stop: ir.Value,
        step: int,
        carried: Values,
        body: Callable[[ir.Value, Values], Values],
    ) -> Values:
        """for i in range(start, stop, step): carried = body(i, carried)."""
        build, entry = self.build, self.build.block
        inside, after = build.append_basic_block("loop"), build.append_basic_block("after")
        build.cbranch(build.icmp_signed("<", start, stop), inside, after)
        build.position_at_end(inside)
        index = build.phi(INT)
        index.add_incoming(start, entry)
        old = [self._phi((value, entry)) for value in carried]
        new = body(index, list(old))
        following, end = build.add(index, number(step)), build.block
        index.add_incoming(following, end)
        for phi, value in zip(old, new, strict=True):
            phi.add_incoming(value, end)
        build.cbranch(build.icmp_signed("<", following, stop), inside, after)
        build.position_at_end(after)
        return [self._phi((a, entry), (b, end)) for a, b in zip(carried, new, strict=True)]

    def do_while(
        self, carried: Values, body: Callable[[Values], tuple[Values, ir.Value]]
    ) -> Values:
        """do: carried, again = body(carried); while again."""
        build, entry = self.build, self.build.block
        inside = build.append_basic_block("repeat")
        build.branch(inside)
        build.position_at_end(inside)
        old = [self._phi((value, entry)) for value in carried]
        new, again = body(list(old))
        for phi, value in zip(old, new, strict=True):
            phi.add_incoming(value, build.block)
        after = build.append_basic_block("after")
        build.cbranch(again, inside, after)
        build.position_at_end(after)
        return new

    def switch(self, key: ir.Value, bodies: Mapping[int, Callable[[], object]]) -> None:
        """Run bodies[key]."""
        after = self.build.append_basic_block("after")
        switch = self.build.switch(key, after)
        for case, body in bodies.items():
            block = self.build.append_basic_block("case")
            switch.add_case(number(case), block)
            self.build.position_at_end(block)
            body()
            self.build.branch(after)
        self.build.position_at_end(after)

    def dispatch(self, key: ir.Value, functions: dict[int, ir.Function], arguments: Values) -> None:
        """functions[key](*arguments)."""
        calls = {n: partial(self.build.call, each, arguments) for n, each in functions.items()}
        self.switch(key, calls)

    def horizontal_sums(self, vectors: Values) -> ir.Value:
        """Sum each of WIDTH vectors: lane j of the result is the sum of vectors[j].

        A tree of WIDTH - 1 shuffles and additions: first within groups of four lanes, then between
        the groups.
        """
        stage = 0
        while len(vectors) > 1:
            even, odd = _even_odd_masks(stage)
            vectors = [
                self.build.fadd(
                    self.build.shuffle_vector(x, y, even), self.build.shuffle_vector(x, y, odd)
                )
                for x, y in zip(vectors[::2], vectors[1::2], strict=True)
            ]
            stage += 1
        return vectors[0]

    def transpose(self, rows: Values) -> Values:
        """Transpose a square of WIDTH vectors."""
        stride = WIDTH // 2
        while stride:
            low, high = _transpose_masks(stride)
            for i in range(WIDTH):
                if not i & stride:
                    x, y = rows[i], rows[i + stride]
                    rows[i] = self.build.shuffle_vector(x, y, low)
                    rows[i + stride] = self.build.shuffle_vector(x, y, high)
            stride //= 2
        return rows

    def _phi(self, *incoming: tuple[ir.Value, ir.Block]) -> ir.Value:
        phi = self.build.phi(incoming[0][0].type)
        for value, block in incoming:
            phi.add_incoming(value, block)
        return phi

    def _call(self, name: str, result: ir.Type, arguments: Values, suffix: str = "") -> ir.Value:
        return self._intrinsic(f"llvm.{name}.v{WIDTH}f32{suffix}", result, arguments)

    def _intrinsic(self, name: str, result: ir.Type, arguments: Values) -> ir.Value:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        return self.build.call(self.module.declare_intrinsic(name, fnty=kind), arguments)


def _even_odd_masks(stage: int) -> tuple[ir.Constant, ir.Constant]:
    """Masks for the even and odd lanes of two vectors; groups of four from the third stage on."""
    size = 1 if stage < 2 else 4
    even: list[int] = []
    odd: list[int] = []
    for group in range(0, WIDTH, 4) if size == 1 else (0,):
        for operand in (0, WIDTH):
            lanes = range(group, group + 4) if size == 1 else range(WIDTH)
            even += [operand + lane for lane in lanes if not lane & size]
            odd += [operand + lane for lane in lanes if lane & size]
    return shuffle_mask(even), shuffle_mask(odd)


def _transpose_masks(stride: int) -> tuple[ir.Constant, ir.Constant]:
    """Masks of one transposition step: swap the off-diagonal blocks of two rows `stride` apart."""
    lanes = range(WIDTH)
    low = [lane if not lane & stride else WIDTH + (lane ^ stride) for lane in lanes]
    high = [lane ^ stride if not lane & stride else WIDTH + lane for lane in lanes]
    return shuffle_mask(low), shuffle_mask(high)
