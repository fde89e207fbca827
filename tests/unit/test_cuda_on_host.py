"""The stand-in for CuPy and cuBLAS, with CUDA C of these tests' own."""

import ctypes
import importlib
import mmap

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

CODE = """
extern "C" __global__ void turn_round(const float* from, float* to)
{
    __shared__ float row[256];
    row[threadIdx.x] = from[blockIdx.x * 256 + threadIdx.x];
    __syncthreads();
    to[blockIdx.x * 256 + threadIdx.x] = row[255 - threadIdx.x];
}
extern "C" __global__ void forget_the_barrier(const float* from, float* to)
{
    __shared__ float row[256];
    row[threadIdx.x] = from[blockIdx.x * 256 + threadIdx.x];
    to[blockIdx.x * 256 + threadIdx.x] = row[255 - threadIdx.x];
}
extern "C" __global__ void leave_early(long long stay)
{
    if (threadIdx.x >= stay) return;
    __syncthreads();
}
extern "C" __global__ void part_ways(long long left)
{
    if (threadIdx.x < left) __syncthreads();
    else
        __syncthreads();
}
extern "C" __global__ void sum_warps(const float* from, float* sums, int* any)
{
    float sum = from[threadIdx.x];
    for (int by = 16; by > 0; by /= 2) sum += __shfl_down_sync(0xffffffff, sum, by);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    any[threadIdx.x] = __syncthreads_or(threadIdx.x == 77) + 2 * __syncthreads_or(0);
}
extern "C" __global__ void write(float* to, long long at, double value) { to[at] = value; }
extern "C" __global__ void count(int* cell) { atomicAdd(cell, 1); }
extern "C" __global__ void twice(float* to, int count)
{
    extern __shared__ float rows[];
    if (threadIdx.x < count) rows[threadIdx.x] = 2 * to[threadIdx.x];
    __syncthreads();
    to[threadIdx.x] = threadIdx.x < count ? rows[threadIdx.x] : 0;
}
"""


@pytest.fixture
def run(cupy):
    """Launch a kernel of CODE."""

    def launch(name, blocks, threads, *arguments, **options):
        cupy.RawKernel(CODE, name)((blocks,), (threads,), arguments, **options)

    return launch


def numbers(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def test_behind_a_barrier_threads_see_what_the_others_wrote(cupy, run):
    rows, turned = numbers(3, 256), cupy.empty((3, 256), np.float32)
    run("turn_round", 3, 256, cupy.asarray(rows), turned)
    assert_array_equal(turned.get(), rows[:, ::-1])


def test_a_forgotten_barrier_shows_from_both_sides(cupy, run):
    rows, turned = np.tile(numbers(256), (2, 1)), cupy.empty((2, 256), np.float32)
    run("forget_the_barrier", 2, 256, cupy.asarray(rows), turned)
    wrong = turned.get() != rows[:, ::-1]
    assert_array_equal(wrong, [[n < 128 for n in range(256)], [n >= 128 for n in range(256)]])


@pytest.mark.parametrize(
    ("kernel", "complaint"),
    [
        ("leave_early", r"block \(0, 0, 0\).* waits at line \d+ .*thread 40 .*has finished"),
        ("part_ways", r"thread \(40, 0, 0\) waits at line \d+ .*which thread 0 does not reach"),
    ],
)
def test_a_barrier_that_not_all_threads_reach_is_an_error(cupy, run, kernel, complaint):
    run(kernel, 2, 64, 40)
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match=complaint):
        cupy.cuda.Device().synchronize()
    run(kernel, 2, 64, 64)  # and what comes next is none the worse for it
    cupy.cuda.Device().synchronize()


def test_warps_exchange_and_blocks_vote(cupy, run):
    row = np.arange(256, dtype=np.float32)
    sums, any_ = cupy.empty(8, np.float32), cupy.empty(256, np.int32)
    run("sum_warps", 1, 256, cupy.asarray(row), sums, any_)
    assert_array_equal(sums.get(), row.reshape(8, 32).sum(axis=1))
    assert_array_equal(any_.get(), 1)


def test_dynamic_shared_memory_and_smaller_integers(cupy, run):
    row = cupy.ones(64, np.float32)
    run("twice", 1, 64, row, np.int32(48), shared_mem=48 * 4)
    assert row.get().tolist() == [2] * 48 + [0] * 16


def test_every_thread_of_a_large_grid_runs_once(cupy, run):
    cell = cupy.zeros(1, np.int32)
    run("count", 3000, 100, cell)
    assert cell.item() == 300_000


def test_writing_behind_an_array_is_an_error(cupy, run):
    row = cupy.zeros(100, np.float32)
    run("write", 1, 1, row, 99, 1.0)
    assert row.get()[-1] == 1
    run("write", 1, 1, row, 100, 1.0)
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match=r"write, block .* not in any"):
        cupy.cuda.Device().synchronize()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((5,), "kernel write takes 3 arguments, got 2"),
        ((5, 1.0, 1), "kernel write takes 3 arguments, got 4"),
        ((5.0, 1.0), "argument 1 of kernel write: got f8, expected i8"),
        ((5, np.float32(1)), "argument 2 of kernel write: got f4, expected f8"),
        ((np.zeros(5), 1.0), "Unsupported type"),
    ],
)
def test_a_kernel_gets_the_arguments_that_it_takes(cupy, run, arguments, complaint):
    with pytest.raises(TypeError, match=complaint):
        run("write", 1, 1, cupy.zeros(9, np.float32), *arguments)


def test_a_capture_records_and_does_not_run(cupy, run, stream):
    row = cupy.zeros(2, np.float32)
    stream.synchronize()
    stream.begin_capture()
    run("write", 1, 1, row, 0, 5.0)
    row += 1
    graph = stream.end_capture()
    assert row.get().tolist() == [0, 0]
    for _ in range(2):
        graph.launch()
    assert row.get().tolist() == [6, 2]


def test_a_capture_refuses_what_a_device_would(cupy, stream):
    row, host = cupy.zeros(4, np.float32), np.zeros(4, np.float32)
    refused = cupy.cuda.runtime.CUDARuntimeError
    stream.begin_capture()
    for what in (
        stream.synchronize,
        row.get,
        row.item,
        lambda: row.set(host),
        lambda: cupy.empty(1),
        lambda: row + 1,
        cupy.cuda.Device().synchronize,
    ):
        with pytest.raises(refused, match="while this thread captures a stream"):
            what()
    with pytest.raises(NotImplementedError):
        cupy.matmul(row, row)
    stream.end_capture()
    assert row.get().tolist() == [0] * 4


def test_a_capture_takes_in_streams_that_follow_and_misses_none(cupy, run, stream):
    row, other = cupy.zeros(2, np.float32), cupy.cuda.Stream(non_blocking=True)
    stream.begin_capture()
    other.wait_event(stream.record())
    with other:
        run("write", 1, 1, row, 0, 1.0)
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="Unjoined"):
        stream.end_capture()
    stream.begin_capture()
    other.wait_event(stream.record())
    with other:
        run("write", 1, 1, row, 0, 1.0)
    stream.wait_event(other.record())
    stream.end_capture().launch()
    assert row.get().tolist() == [1, 0]


def test_a_graph_whose_memory_is_gone_is_not_launched(cupy, stream):
    row = cupy.zeros(4, np.float32)
    stream.synchronize()
    stream.begin_capture()
    row.fill(1)
    graph = stream.end_capture()
    del row
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="the graph uses freed memory"):
        graph.launch()


def test_pinned_memory_is_read_when_the_stream_comes_to_it(cupy, stream):
    host = np.frombuffer(cupy.cuda.alloc_pinned_memory(16), np.float32, 4)
    row = cupy.zeros(4, np.float32)
    host[:] = 1
    row.set(host)
    host[:] = 2  # too early
    assert row.get().tolist() == [2] * 4
    pageable = np.ones(4, np.float32)
    row.set(pageable)
    pageable[:] = 2  # has been read
    assert row.get().tolist() == [1] * 4


def test_pinned_memory_is_written_when_the_stream_comes_to_it(cupy, stream):
    row, pageable = cupy.ones(4, np.float32), np.zeros(4, np.float32)
    host = np.frombuffer(cupy.cuda.alloc_pinned_memory(16), np.float32, 4)
    row.get(out=host, blocking=False)
    assert host.tolist() == [0] * 4
    stream.synchronize()
    assert host.tolist() == [1] * 4
    row.fill(2)
    row.get(out=pageable, blocking=False)
    assert pageable.tolist() == [2] * 4


def test_a_stream_waits_for_another_only_if_told_to(cupy, stream):
    row, seen = cupy.zeros(1, np.float32), cupy.zeros(2, np.float32)
    stream.synchronize()
    other = cupy.cuda.Stream(non_blocking=True)
    row.fill(1)
    done = stream.record()
    with other:
        seen[:1] = row
        other.synchronize()
        other.wait_event(done)
        seen[1:] = row
        assert seen.get().tolist() == [0, 1]
    assert done.done


def test_the_null_stream_and_blocking_ones_wait_for_each_other(cupy):
    row, null, blocking = cupy.zeros(1, np.float32), cupy.cuda.Stream.null, cupy.cuda.Stream()
    with blocking:
        row += 1
    with null:
        row *= 3
    with blocking:
        row += 1
        assert row.item() == 4
    with pytest.raises(RuntimeError, match="cannot capture on the default"):
        null.begin_capture()


def test_events_tell_the_time_between_them(cupy, run, stream):
    start = stream.record()
    run("count", 1000, 256, cupy.zeros(1, np.int32))
    end = stream.record()
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="NotReady"):
        cupy.cuda.get_elapsed_time(start, end)
    end.synchronize()
    assert start.done and cupy.cuda.get_elapsed_time(start, end) > 0


def test_memory_runs_out_and_is_given_back(cupy):
    pool = cupy.get_default_memory_pool()
    free, total = cupy.cuda.runtime.memGetInfo()
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError):
        cupy.empty(2 * free, np.uint8)
    held = cupy.empty(1000, np.uint8)
    assert cupy.cuda.runtime.memGetInfo() == (free - 1000, total)
    pool.set_limit(size=pool.used_bytes() + 1000)
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError, match="limit set to"):
        cupy.empty(1001, np.uint8)
    pool.set_limit(size=0)
    held.fill(0)  # still waits in the stream when the array is gone
    del held
    assert cupy.cuda.runtime.memGetInfo() == (free, total)


def test_memory_of_the_host_is_registered_once_and_mapped(cupy, run):
    cuda, host = cupy.cuda, np.zeros(4, np.float32)
    memory = cuda.UnownedMemory(host.ctypes.data, host.nbytes, host, 0)
    mapped = cupy.ndarray(host.shape, host.dtype, cuda.MemoryPointer(memory, 0))
    with pytest.raises(cuda.runtime.CUDARuntimeError, match="IllegalAddress"):
        run("write", 1, 1, mapped, 2, 1.0)
    cuda.runtime.hostRegister(host.ctypes.data, host.nbytes, 0)
    with pytest.raises(cuda.runtime.CUDARuntimeError, match="AlreadyRegistered"):
        cuda.runtime.hostRegister(host.ctypes.data, host.nbytes, 0)
    run("write", 1, 1, mapped, 2, 1.0)
    cuda.Device().synchronize()
    cuda.runtime.hostUnregister(host.ctypes.data)
    assert host.tolist() == [0, 0, 1, 0]
    with pytest.raises(cuda.runtime.CUDARuntimeError, match="NotRegistered"):
        cuda.runtime.hostUnregister(host.ctypes.data)


def test_memory_that_is_mapped_read_only_is_not_registered(cupy):
    runtime = cupy.cuda.runtime
    host = np.frombuffer(mmap.mmap(-1, 4096, prot=mmap.PROT_READ), np.uint8)
    with pytest.raises(runtime.CUDARuntimeError, match="InvalidValue"):
        runtime.hostRegister(host.ctypes.data, host.nbytes, 0)
    supported = runtime.cudaDevAttrHostRegisterReadOnlySupported
    assert runtime.deviceGetAttribute(supported, 0) == 0
    with pytest.raises(runtime.CUDARuntimeError) as refused:
        runtime.hostRegister(host.ctypes.data, host.nbytes, 8)  # cudaHostRegisterReadOnly
    assert refused.value.status == 801  # cudaErrorNotSupported


def test_arrays_do_not_become_the_hosts_by_themselves(cupy):
    row = cupy.zeros(3, np.float32)
    for mistake in (lambda: np.asarray(row), lambda: row + np.ones(3, np.float32)):
        with pytest.raises(TypeError):
            mistake()
    with pytest.raises(ValueError):
        row[:] = np.ones(3, np.float32)


class Cublas:
    """A handle; matrices are stored by columns."""

    def __init__(self, stream):
        pathfinder = importlib.import_module("cuda.pathfinder")
        self.library = ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("cublas").abs_path)
        self.handle = ctypes.c_void_p()
        assert self.library.cublasCreate_v2(ctypes.byref(self.handle)) == 0
        assert self.library.cublasSetStream_v2(self.handle, ctypes.c_void_p(stream.ptr)) == 0

    def multiply(self, operations, sizes, left, right, out, leading, compute=68, beta=0.0):
        scale = ctypes.byref(ctypes.c_float(2.0)), ctypes.byref(ctypes.c_float(beta))
        a, b, c = (ctypes.c_void_p(array.data.ptr) for array in (left, right, out))
        operands = (a, 0, leading[0], b, 0, leading[1])
        product = (*operations, *sizes, scale[0], *operands, scale[1], c, 0, leading[2])
        return self.library.cublasGemmEx(self.handle, *product, compute, -1)


@pytest.mark.parametrize("transposed", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_products_of_matrices_that_are_stored_by_columns(cupy, stream, transposed):
    m, n, k = 3, 5, 4
    left, right, before = numbers(m, k), numbers(k, n), numbers(m, n)
    stored = [each.T if t else each for each, t in zip((left, right), transposed, strict=True)]
    there = [cupy.asarray(each.T) for each in (*stored, before)]  # the transpose, by rows
    leading = [each.shape[1] for each in there]
    assert Cublas(stream).multiply(transposed, (m, n, k), *there, leading, beta=0.5) == 0
    assert_allclose(there[2].get().T, 2 * (left @ right) + before / 2, rtol=1e-5, atol=1e-6)


def test_a_product_is_recorded_and_may_write_on_nan(cupy, stream):
    left, right = (cupy.ones((2, 2), np.float32) for _ in range(2))
    out = cupy.full((2, 2), np.nan, np.float32)
    cublas = Cublas(stream)
    stream.begin_capture()
    assert cublas.multiply((0, 0), (2, 2, 2), left, right, out, (2, 2, 2)) == 0
    graph = stream.end_capture()
    assert np.isnan(out.get()).all()
    graph.launch()
    assert_array_equal(out.get(), 4)


@pytest.mark.parametrize(("compute", "bits"), [(68, 23), (77, 10), (75, 7)])
def test_operands_are_rounded_to_the_precision_asked_for(cupy, stream, compute, bits):
    smallest = np.float32(2.0**-bits)
    left = cupy.full((1, 1), 1 + smallest, np.float32)
    finer = cupy.full((1, 1), 1 + smallest / 4, np.float32)
    one, out = cupy.ones((1, 1), np.float32), cupy.zeros((1, 1), np.float32)
    cublas = Cublas(stream)
    assert cublas.multiply((0, 0), (1, 1, 1), left, one, out, (1, 1, 1), compute) == 0
    assert out.item() == 2 * (1 + smallest)
    assert cublas.multiply((0, 0), (1, 1, 1), finer, one, out, (1, 1, 1), compute) == 0
    assert out.item() == 2


def test_a_product_that_does_not_fit_its_storage_is_refused(cupy, stream):
    square = cupy.ones((4, 4), np.float32)
    cublas = Cublas(stream)
    assert cublas.multiply((0, 0), (4, 4, 4), square, square, square, (3, 4, 4)) == 7
    assert cublas.multiply((0, 0), (4, 4, 4), square, square, square, (4, 4, 4), 64) == 15


def test_a_with_block_forgets_the_stream_that_was_in_use(cupy):
    used, entered = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    used.use()
    with entered:
        assert cupy.cuda.get_current_stream() is entered
    assert cupy.cuda.get_current_stream() is cupy.cuda.Stream.null
