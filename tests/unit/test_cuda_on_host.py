"""The stand-in for CuPy, with CUDA C of these tests' own."""

import mmap

import numpy as np
import pytest
from numpy.testing import assert_array_equal

CODE = """
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
extern "C" __global__ void write(float* to, long long at, double value) { to[at] = value; }
"""


def pinned(cupy):
    """Memory for four float32."""
    return cupy.cuda.PinnedMemoryPointer(cupy.cuda.PinnedMemory(16), 0)


@pytest.fixture
def run(cupy):
    """Launch a kernel of CODE."""

    def launch(name, blocks, threads, *arguments, **options):
        cupy.RawKernel(CODE, name)((blocks,), (threads,), arguments, **options)

    return launch


def numbers(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


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
    host = np.frombuffer(pinned(cupy), np.float32, 4)
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
    host = np.frombuffer(pinned(cupy), np.float32, 4)
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
