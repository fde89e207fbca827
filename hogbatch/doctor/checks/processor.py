"""Checks of the processor: vectors, cores, quota, NUMA nodes, frequency, load."""

from typing import Final

from hogbatch.doctor.facts import Facts, Unknown
from hogbatch.doctor.verdict import Verdict, ok, unknown, warn
from hogbatch.machine.topology import show_cores, training_threads

INSTRUCTION_SETS: Final = {  # LLVM's name: the usual one
    "avx512f": "AVX-512",
    "avx2": "AVX2",
    "fma": "FMA",
    "neon": "NEON",
}
WIDTHS: Final = ("4", "8", "16")  # floats in a vector
# With these drivers, the processor itself raises the frequency under "powersave".
SELF_GOVERNED: Final = ("intel_pstate", "amd-pstate-epp")
MAX_BUSY: Final = 0.2  # fraction of the allowed cores that others may use without a warning
MAX_STOLEN: Final = 0.05


def check_model(facts: Facts) -> Verdict:
    """The name of the processor."""
    name = facts.processor.name
    return unknown(name) if isinstance(name, Unknown) else ok(name)


def check_vectors(facts: Facts) -> Verdict:
    """The vector instructions that kernels use."""
    found = facts.processor
    forced = found.forced_floats
    if forced and forced not in WIDTHS:
        return warn(
            "HOGBATCH_VECTOR is not 4, 8 or 16",
            "kernels cannot be compiled; remove this variable",
            "unset HOGBATCH_VECTOR",
        )
    if isinstance(found.features, Unknown):
        return unknown(found.features)
    if isinstance(found.vector_floats, Unknown):
        return unknown(found.vector_floats)
    names = [name for key, name in INSTRUCTION_SETS.items() if key in found.features]
    listed = ", ".join(names) or "no AVX2"
    if forced and int(forced) != found.vector_floats:
        return warn(
            f"{listed}; HOGBATCH_VECTOR forces vectors of {forced} floats",
            f"kernels are fastest with {found.vector_floats}; remove this variable",
            "unset HOGBATCH_VECTOR",
        )
    value = f"{listed}; vectors of {found.vector_floats} floats"
    if found.vector_floats < 8 and found.architecture == "x86_64":
        return warn(
            value,
            "dense kernels run at half of the speed of AVX2 or less; use a newer processor, or let "
            "the virtual machine use all features of its host (QEMU: -cpu host)",
        )
    return ok(value)


def check_cores(facts: Facts) -> Verdict:
    """The cores that the affinity mask allows."""
    topology, logical = facts.processor.topology, facts.processor.logical_cores
    if isinstance(topology, Unknown):
        return unknown(topology)
    cores, allowed = len(topology.siblings), len(topology.cores)
    usable = facts.gpu.usable
    gpus = 0 if isinstance(usable, Unknown) else len(usable)
    training = training_threads(topology.threads, cores, gpus)
    all_of = "" if isinstance(logical, Unknown) else f" (of {logical})"
    value = f"{_count(cores, 'core')}, {_count(allowed, 'logical core')} allowed{all_of}"
    if allowed == 1 and not isinstance(logical, Unknown) and logical > 1:
        return warn(
            f"{value}: core {show_cores(topology.cores)}",
            "only one thread trains; start hogbatch without taskset, or request more cores from "
            "the scheduler (Slurm: --cpus-per-task)",
        )
    return ok(f"{value}; {_count(training, 'training thread')}")


def check_quota(facts: Facts) -> Verdict:
    """The CPU quota of the cgroup."""
    topology = facts.processor.topology
    if isinstance(topology, Unknown):
        return unknown(topology)
    quota, allowed = topology.quota, len(topology.cores)
    if quota is None:
        return ok("none")
    value = f"the cgroup grants {quota:.2g} of {_count(allowed, 'logical core')}"
    if quota >= allowed:
        return ok(value)
    first = show_cores(sorted(topology.cores)[: topology.threads])
    cpuset = f"docker run --cpuset-cpus {first}"
    if quota < 1:
        return warn(
            value,
            f"training is suspended {1 - quota:.0%} of the time; raise the quota, or give the "
            "container a whole core instead of a quota",
            cpuset,
        )
    return warn(
        value,
        "threads are not pinned and do not train in teams, so training is slower; give the "
        "container cores instead of a quota",
        cpuset,
    )


def check_nodes(facts: Facts) -> Verdict:
    """The NUMA nodes."""
    topology, nodes = facts.processor.topology, facts.processor.nodes
    for fact in (topology, nodes):
        if isinstance(fact, Unknown):
            return unknown(fact)
    assert not isinstance(topology, Unknown) and not isinstance(nodes, Unknown)
    used = len(topology.nodes)
    if nodes == 1:
        return ok("1 node")
    if used < nodes:
        return ok(f"{used} of {nodes} nodes allowed")
    return ok(f"{nodes} nodes; shared memory is spread over them")


def check_governor(facts: Facts) -> Verdict:
    """The frequency governor."""
    governors, driver = facts.processor.governors, facts.processor.frequency_driver
    if isinstance(governors, Unknown):
        return unknown(governors)
    named = " ".join(sorted(governors))
    if "powersave" in governors and driver not in SELF_GOVERNED:
        return warn(
            named,
            "cores stay at their lowest frequency, so training is several times slower; choose "
            "another governor",
            "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
        )
    return ok(named)


def check_load(facts: Facts) -> Verdict:
    """The load of the allowed cores at this moment."""
    load = facts.processor.load
    if isinstance(load, Unknown):
        return unknown(load)
    value = f"other processes use {load.busy:.1f} of {_count(load.cores, 'logical core')}"
    if load.stolen > MAX_STOLEN * load.cores:
        return warn(
            f"{value}, other virtual machines {load.stolen:.1f}",
            "threads wait for cores, so training is slower; use a virtual machine with cores of "
            "its own",
        )
    if load.busy > MAX_BUSY * load.cores:
        return warn(
            value,
            "training is slower, and the speeds measured at its start are inexact; end these "
            "processes (top lists them), or choose other cores with taskset",
        )
    return ok(value)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
