"""The two segments of a run: its data, and all that its processes write."""

from dataclasses import replace
from pathlib import Path

from hogbatch.checkpoint.snapshots import Arrays, ModelCopy
from hogbatch.config.train import TrainConfig
from hogbatch.data.load import LoadedData
from hogbatch.data.order import epoch_order
from hogbatch.model.network import Network
from hogbatch.model.optimizers import OPTIMIZERS
from hogbatch.store import dataset
from hogbatch.store.dataset import EpochOrders
from hogbatch.store.fence import Fences
from hogbatch.store.layout import arrange
from hogbatch.store.model import SharedModel
from hogbatch.store.quarantine import QuarantinedRows
from hogbatch.store.segment import Segment


class Store:
    """The two segments, filled and ready to be handed over."""

    def __init__(
        self, config: TrainConfig, loaded: LoadedData, network: Network, run_dir: Path
    ) -> None:
        train, test = loaded.train, loaded.test
        self.data = Segment.create("data", arrange(dataset.fields(train, test)))
        dataset.fill(self.data, train, test)
        self.data.seal_data()
        fields = {
            **SharedModel.fields(network.parameters, OPTIMIZERS[config.optimizer].slots),
            **EpochOrders.fields(train.rows),
            **Fences.fields(),
        }
        self.shared = Segment.create("shared", arrange(fields))
        self.model = SharedModel.of(self.shared)
        self.fences = Fences.of(self.shared)
        self.quarantined = QuarantinedRows(run_dir)
        self._network, self._mean_square = network, train.mean_square
        self._orders = EpochOrders.attach(self.shared)
        self._seed = config.seed
        self.features = train.features
        self.fingerprint = loaded.fingerprint
        self.begin()

    def begin(self) -> None:
        """Put the first weights into the model."""
        for array in (self.model.first, self.model.second, self.model.steps, self.model.merges):
            array[:] = 0
        self._network.initialise(self.model.params, self._seed, self._mean_square)

    def resume(self, arrays: Arrays) -> None:
        """Begin with the model of a checkpoint's `arrays`, not with the first weights."""
        ModelCopy(*(arrays[name] for name in ModelCopy._fields)).put_into(self.model)
        self.quarantined.rows = [int(row) for row in arrays["quarantined"]]

    def close(self) -> None:
        """Give the memory back; views of it live on as long as someone holds them."""
        self.data.close()
        self.shared.close()

    @property
    def segments(self) -> dict[str, Segment]:
        """By the names that workers know."""
        return {"data": self.data, "shared": self.shared}

    def in_place_of(self, loaded: LoadedData) -> LoadedData:
        """`loaded` with its sets as views of shared memory, so that they are there only once."""
        features = self.features
        train, test = dataset.train_of(self.data, features), dataset.test_of(self.data, features)
        return replace(loaded, train=train, test=test)

    def shuffle(self, epoch: int, without: int) -> None:
        """Write the order of `epoch`, the first `without` of the quarantined rows last."""
        order = self._orders.of(epoch)
        last = self.quarantined.rows[:without]
        order[:] = epoch_order(len(order), self._seed, epoch, last)

    def quarantine(self, epoch: int, start: int, stop: int) -> None:
        """Leave rows [start, stop) of the order of `epoch` out of later ones."""
        self.quarantined.add(self._orders.of(epoch), epoch, start, stop)
