"""Which attached workers hold which parts of divided data."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from hogbatch.coordinator.worker import Worker


@dataclass(slots=True)
class Holders:
    """The attached workers by the parts that they hold; a part is usually held by one or two."""

    _by_part: dict[int, dict[int, Worker]] = field(default_factory=dict)  # part → number → worker

    def add(self, worker: Worker) -> None:
        """`worker` has attached."""
        for part in worker.parts:
            self._by_part.setdefault(part, {})[worker.number] = worker

    def drop(self, worker: Worker) -> None:
        """`worker` has left."""
        for part in worker.parts:
            del self._by_part[part][worker.number]

    def ready(self, part: int) -> list[Worker]:
        """The workers with `part` that can be given rows."""
        return [worker for worker in self._by_part.get(part, {}).values() if worker.ready]

    def any_ready(self, parts: Iterable[int]) -> bool:
        """Whether a worker that can be given rows holds any of `parts`."""
        return any(map(self.ready, parts))

    def all_ready(self, parts: Collection[int]) -> bool:
        """Whether workers that can be given rows hold all `parts`."""
        return all(map(self.ready, parts))

    def missing(self, parts: Iterable[int]) -> list[int]:
        """Those of `parts` that no attached worker holds."""
        return [part for part in parts if not self._by_part.get(part)]
