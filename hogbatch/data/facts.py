"""The data of a run besides the values of its rows."""

from typing import TypeAlias

from hogbatch.cluster.divided.decide import DividedData
from hogbatch.data.load import LoadedData

# Plans, results and checkpoints use only the attributes that both have.
DataFacts: TypeAlias = LoadedData | DividedData
