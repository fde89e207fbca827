"""The process of an engine under test, on a clock of its own."""

from hogbatch.simulate.event_queue import EventQueue


class SimulatedHost:
    """Runs actions in simulated time until it exits. `posted` are (time, message)."""

    def __init__(self, assignment=None, queue=None):
        self.queue = queue or EventQueue()
        self.posted = []
        self.exited = None
        self._assignment = assignment

    @property
    def now(self):
        return self.queue.now

    @property
    def alive(self):
        return self.exited is None

    @property
    def fence(self):
        return int(self._assignment.fence[0])

    def later(self, seconds, action):
        self.queue.after(seconds, lambda: action() if self.alive else None)

    def post(self, message):
        self.posted.append((self.now, message))

    def exit(self, cause):
        self.exited = cause

    def run(self, until=float("inf")):
        """Run all actions scheduled before `until`."""
        self.queue.at(until, lambda: None) if until < float("inf") else None
        while self.queue.now < until and self.queue.step():
            pass
