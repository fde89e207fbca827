"""Ctrl-C, SIGTERM and a closed terminal: the first asks the run to end, the second ends it."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """The number of signals so far that ask the run to end."""

    def __init__(self) -> None:
        self.count = 0

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
        ours = [s for s in ENDING_SIGNALS if not (nohup and s == signal.SIGHUP)]
        before = {s: signal.signal(s, count) for s in ours}
        try:
            yield
        finally:
            for number, handler in before.items():
                if signal.getsignal(number) is count:  # unless it was replaced meanwhile
                    signal.signal(number, handler)
