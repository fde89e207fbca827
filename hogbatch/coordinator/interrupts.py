"""Requests to end a run: Ctrl-C, SIGTERM, a closed terminal, or a callback.

The first signal asks the run to end, the second ends it.
"""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """The number of requests so far to end the run: `signals`, and calls of :meth:`request`."""

    def __init__(self, signals: Sequence[signal.Signals] = ENDING_SIGNALS) -> None:
        self._signals = signals
        self.count = 0
        self.reason = "interrupted"  # of the last request, for messages

    def request(self, reason: str) -> None:
        self.count += 1
        self.reason = reason

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the signals in the `with` block, if this thread may handle signals.

        The second one goes to the previous handler of Ctrl-C, which usually raises
        KeyboardInterrupt.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def count(number: int, frame: FrameType | None) -> None:
            self.count += 1
            if self.count > 1:
                if callable(usual := before[signal.SIGINT]):
                    usual(number, frame)
                raise KeyboardInterrupt

        nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        ours = [s for s in self._signals if not (nohup and s == signal.SIGHUP)]
        before = {s: signal.signal(s, count) for s in ours}
        try:
            yield
        finally:
            for number, handler in before.items():
                if signal.getsignal(number) is count:  # unless it was replaced meanwhile
                    signal.signal(number, handler)
