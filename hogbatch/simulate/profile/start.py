"""The values from which the fit starts: typical ones of a core, of NumPy and of a GPU."""

from hogbatch.simulate.hardware.description import Cpu, Dense, Hashed, Memory, ServerGpu, Sparse

SLICE_SECONDS = 0.004  # a tick of Linux with CONFIG_HZ=250


def cpu_at_start(model: str, threads: int, cores: int, cores_per_cache: int, source: str) -> Cpu:
    """Return a CPU with these counts, and typical speeds."""
    memory = Memory(
        private_cache=1 << 20,
        shared_cache=1 << 25,
        private_speed=120e9,
        shared_speed=60e9,
        memory_speed=20e9,
        server_speed=20e9 * max(1, cores / 2),
        near_speed=12e9,
        far_speed=6e9,
        copy_speed=8e9,
        barrier_seconds=1e-7,
        source=source,
        sources={"far_speed": "assumed: half of near_speed"},
    )
    dense = Dense(
        flops=250e9,
        batch_seconds=5e-7,
        layer_seconds=5e-7,
        row_seconds=1e-7,
        cell_seconds=3e-10,
        exp_seconds=1e-9,
        score_seconds=3e-9,
        step_seconds=1e-10,
        source=source,
    )
    sparse = Sparse(
        value_seconds=2e-9,
        cell_seconds=1e-10,
        touched_seconds=5e-9,
        slot_seconds=1e-10,
        line_seconds=3e-9,
        fetch_seconds=3e-9,
        linear_row_seconds=5e-8,
        linear_value_seconds=3e-9,
        source=source,
    )
    hashed = Hashed(
        hash_seconds=7e-9,
        candidate_seconds=1e-8,
        active_seconds=3e-8,
        step_seconds=2e-10,
        insert_seconds=1e-8,
        source=source,
    )
    return Cpu(
        model,
        threads,
        cores,
        cores_per_cache,
        1.0,
        SLICE_SECONDS,
        memory,
        dense,
        sparse,
        hashed,
        source,
        sources={"smt_gain": "assumed"},
    )


def host_at_start(source: str) -> ServerGpu:
    """Return `gpu:host` with typical speeds of NumPy on one core."""
    return ServerGpu(
        ordinal="host",
        model="NumPy on one core",
        flops=100e9,
        fill_cells=1e3,
        memory_speed=8e9,
        exchange_speed=8e9,
        step_seconds=2e-5,
        launch_seconds=1e-5,
        score_seconds=1e-8,
        value_seconds=1e-7,
        cell_seconds=1e-9,
        touched_seconds=5e-9,
        link_speed=8e9,
        link_seconds=1e-6,
        mapped_speed=8e9,
        host_add_speed=8e9,
        source=source,
    )


def gpu_at_start(ordinal: int, model: str, source: str) -> ServerGpu:
    """Return a GPU with typical speeds of a server's GPU."""
    return ServerGpu(
        ordinal=ordinal,
        model=model,
        flops=30e12,
        fill_cells=3e5,
        memory_speed=1.5e12,
        exchange_speed=1.5e12,
        step_seconds=5e-6,
        launch_seconds=2e-6,
        score_seconds=1e-11,
        value_seconds=1e-11,
        cell_seconds=1e-11,
        touched_seconds=1e-11,
        link_speed=20e9,
        link_seconds=1e-5,
        mapped_speed=10e9,
        host_add_speed=10e9,
        source=source,
    )
