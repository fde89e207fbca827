"""The faults of a run, their targets and times, all derived from a seed."""

import random
from dataclasses import dataclass

# Dealt like a deck of cards, so that everything comes once before anything comes again. A random
# worker is meant where nothing else is said.
DECK = (
    *("kill", "kill", "kill"),  # SIGKILL
    "crash",  # SIGSEGV
    *("pause", "pause"),  # SIGSTOP, and SIGCONT after a while
    "leave",  # SIGTERM
    *("join", "join"),  # another worker attaches by hand
    "garbage",  # on the control plane
    "full disk",  # for the coordinator, for a while
    "poison",  # NaN in the shared model
    "coordinator",  # SIGKILL, then --resume auto
    "corrupt",  # a flipped byte in the newest checkpoint, and the same
)
KINDS = tuple(dict.fromkeys(DECK))
LASTING = {"pause": (0.1, 2.0), "full disk": (0.5, 3.0)}  # seconds, from and to


@dataclass(frozen=True, slots=True)
class Act:
    """One act of sabotage."""

    at: float  # seconds since training began
    what: str  # of KINDS
    whom: float  # [0, 1): which of those there are, by age
    lasts: float  # seconds
    seed: int  # of whatever else is left to chance

    def __str__(self) -> str:
        lasts = f" for {self.lasts:.2f} s" if self.lasts else ""
        return f"{self.at:6.2f} s  {self.what}{lasts}"


def plan(
    seed: int, seconds: float, every: float = 1.0, kinds: tuple[str, ...] = KINDS
) -> list[Act]:
    """Acts at random moments within `seconds`, on average `every` so many seconds."""
    chance = random.Random(seed)
    acts: list[Act] = []
    deck: list[str] = []
    at = 0.0
    while (at := at + chance.expovariate(1 / every)) < seconds:
        if not deck:
            deck = [what for what in DECK if what in kinds]
            chance.shuffle(deck)
        what = deck.pop()
        lasts = chance.uniform(*LASTING.get(what, (0.0, 0.0)))
        acts.append(Act(at, what, chance.random(), lasts, chance.getrandbits(32)))
    return acts
