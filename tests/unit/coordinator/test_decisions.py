"""A batch policy that fails ends the run with one sentence, and the workers are stopped."""

from hogbatch.coordinator.commands import Keep
from hogbatch.errors import PolicyError
from hogbatch.wire.messages import Stop
from tests.support.coordinator_stage import is_send, of_kind, records, works


class Broken:
    """Fails at the `after`-th call of `method`."""

    def __init__(self, method, after=1):
        self.method, self.left = method, after

    def first_size(self, worker):
        return self._answer("first_size", worker.smallest)

    def next_size(self, worker, others):
        return self._answer("next_size", worker.batch_size)

    def _answer(self, method, size):
        self.left -= method == self.method
        if method == self.method and self.left == 0:
            raise PolicyError(f"--policy mine:Broken: {method} must return a finite number")
        return size


def test_a_failing_first_size_ends_the_run_before_any_lease(stage):
    play = stage(policy=Broken("first_size"))
    commands = play.attach("a", "b")
    assert play.finish.status == "failed" and play.finish.by_policy
    assert play.finish.reason == "--policy mine:Broken: first_size must return a finite number"
    assert any(is_send(command, Stop) for command in commands) and works(commands) == []
    assert of_kind(commands, Keep) == []  # nothing was learnt


def test_a_failing_next_size_ends_the_run_and_keeps_the_model(stage):
    play = stage("a", "b", policy=Broken("next_size", after=2))
    play.done("a")
    commands = play.done("b")
    assert play.finish.by_policy and "next_size" in play.finish.reason
    assert len(records(commands, "lease")) == 1  # the lease that was reported counts
    stopped = {command.worker for command in commands if is_send(command, Stop)}
    assert stopped == {"a", "b"} and works(commands) == []
    assert len(of_kind(commands, Keep)) == 1
