"""PyTorch Hogwild: processes of one thread train one model in shared memory without locks.

`torch.multiprocessing` over `model.share_memory()`, each process with its own optimizer.
"""

import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.peers.contract import (
    Problem,
    Setting,
    Stopwatch,
    combine,
    dense,
    forms,
    read_problem,
    sgd_rates,
    write_problem,
)

PROCESSES = 2
POLL_S = 0.005  # of the waiting process
ORPHAN_CHECK_S = 1.0

NAME = "pytorch-hogwild"
PACKAGE = "torch"
PACE = ("form",)


def grid(problem: Problem) -> list[Setting]:
    """Plain SGD, batches of 8 to 64."""
    if problem.linear:
        return []
    rates = sgd_rates(problem)
    return combine(batch=(8, 16, 32, 64), lr=rates, form=forms(problem.train))


def train(problem: Problem, setting: Setting, seed: int, watch: Stopwatch) -> None:
    """The start of the processes and their first steps are not timed."""
    import torch
    import torch.multiprocessing as mp

    from benchmarks.peers import torch_network as net

    torch.set_num_threads(PROCESSES)  # for the evaluation, during which the other processes wait
    network = net.build(problem, setting["form"], seed)
    network.share_memory()
    measure = net.evaluation(problem, network, setting["form"])
    context = mp.get_context("spawn")
    gates = [context.Event() for _ in range(PROCESSES)]
    flags = torch.zeros(PROCESSES, 3, dtype=torch.int64).share_memory_()
    with TemporaryDirectory() as directory:
        write_problem(problem, Path(directory))
        arguments = (directory, setting, seed, network, flags, gates)
        processes = [
            context.Process(target=_work, args=(number, *arguments), daemon=True)
            for number in range(PROCESSES)
        ]
        for process in processes:
            process.start()
        _wait_until_paused(flags, processes)
    _train(watch, measure, flags, gates, processes)


RUN, PAUSED, ROWS = range(3)  # columns of the shared flags[PROCESSES, 3]


def _train(watch: Stopwatch, measure: Any, flags: Any, gates: Any, processes: Any) -> None:
    """Let the processes train, pause them for each evaluation, and stop them at the end."""
    watch.start(measure)
    while True:
        flags[:, PAUSED] = 0
        flags[:, RUN] = 1
        for gate in gates:
            gate.set()
        while not watch.due:
            time.sleep(POLL_S)
        flags[:, RUN] = 0
        _wait_until_paused(flags, processes)
        watch.rows = int(flags[:, ROWS].sum())
        if watch.over(measure):
            break
    for process in processes:
        process.terminate()
        process.join()


def _wait_until_paused(flags: Any, processes: Any) -> None:
    while not bool(flags[:, PAUSED].all()):
        if not all(process.is_alive() for process in processes):
            raise RuntimeError("a process of PyTorch Hogwild has exited")
        time.sleep(POLL_S / 10)


def _work(
    number: int, directory: str, setting: Setting, seed: int, network: Any, flags: Any, gates: Any
) -> None:
    """One of the processes: its own rows, in a random order of its own each epoch."""
    import torch

    from benchmarks.peers import torch_network as net

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    problem = read_problem(Path(directory))
    fraction = slice(number, None, PROCESSES)
    x, y = net.in_form(problem.train.x[fraction], setting["form"]), dense(problem.train.y[fraction])
    random = np.random.default_rng((seed, number))
    net.warm_up(problem, setting, x, y)
    step, run = net.stepper(problem, network, setting), flags[number].numpy()
    parent = os.getppid()
    while True:
        for inputs, targets in net.batches(x, y, setting["batch"], random):
            if not run[RUN]:
                gates[number].clear()
                run[PAUSED] = 1
                while not gates[number].wait(ORPHAN_CHECK_S) and os.getppid() == parent:
                    pass
            if os.getppid() != parent:  # the parent was killed and cannot stop this process
                return
            step(inputs, targets)
            run[ROWS] += len(targets)
