"""Reads all facts. A fact that cannot be read becomes `Unknown`; nothing here raises an error."""

from hogbatch.doctor.facts import Facts, Unknown
from hogbatch.doctor.reading.caches import read_caches
from hogbatch.doctor.reading.gpu import read_gpu
from hogbatch.doctor.reading.memory import read_memory
from hogbatch.doctor.reading.processor import read_processor
from hogbatch.doctor.reading.software import read_software


def read_facts() -> Facts:
    """Return all facts about this machine and installation."""
    gpu = read_gpu()
    cupy = () if isinstance(gpu.cupy, Unknown) else gpu.cupy
    return Facts(read_processor(), read_memory(), gpu, read_caches(), read_software(cupy))
