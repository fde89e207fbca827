"""Merges of several servers: rows, steps, joining and leaving."""

import math
from collections import Counter

import pytest
from hypothesis import given, strategies as st

from hogbatch.coordinator.commands import Finish
from hogbatch.coordinator.state import MIN_TICK_S
from hogbatch.coordinator.workforce import TICK_S
from hogbatch.events.event import CheckpointBegins, LeaseDone, ServersMerged, WorkerLost
from hogbatch.wire.messages import Collect, Collected, Hello, Reduce, ServerWorkers
from tests.support.coordinator_stage import FINGERPRINT, PACKAGE, Stage
from tests.support.property_tests import max_examples
from tests.support.servers_stage import ServersStage, rows_of


def two_servers(**plan):
    """A stage with the servers "a" and "b"; returns these, too."""
    stage = ServersStage(**{"train_rows": 5000, "start_with": 2, "merge_rows": 400, **plan})
    return stage, stage.join("a"), stage.join("b")


@pytest.mark.parametrize(("rule", "waits"), [("adasum", False), ("average", True)])
def test_merges_wait_for_the_end_of_leases_only_to_count_updates(rule, waits):
    stage, one, two = two_servers(
        train_rows=20_000, merge_rows=200, lease_seconds=2.0, rule=rule, share=0.5
    )
    stage.run()
    merges = stage.recorded(ServersMerged)
    leases = len(stage.recorded(LeaseDone))
    assert (len(merges) <= leases) == waits
    assert waits or 60 < len(merges) < 120  # 10 s of training, 100 merges of 200 rows
    assert one.merged == two.merged == rows_of(1, 20_000)


def test_no_merge_begins_shortly_before_one_that_training_waits_for():
    stage = ServersStage(
        train_rows=6000,
        validation_rows=10,
        epochs=3,
        start_with=2,
        eval_seconds=1.7,
        lease_seconds=0.5,
    )
    stage.join("a"), stage.join("b", row_seconds=3e-3)
    waited = Counter()

    def look(stage):
        merges, rows, phase = stage.state.merges, stage.state.epochs.rows, stage.state.phase
        draining = phase == "drain"
        if rows.held and (draining or not rows.todo) and rows.unmerged_rows >= 100:
            assert merges.due_at(draining=draining) == math.inf
            waited[phase] += not merges.busy
        return False

    stage.run(look)
    assert waited["train"] and waited["drain"], "this has been the case"


def test_the_next_tick_comes_when_a_merge_is_due():
    stage, *_ = two_servers(train_rows=50_000, merge_rows=60, lease_seconds=2.0)
    assert stage.state.until_tick(stage.now) == TICK_S
    stage.run(lambda stage: stage.state.merges.number > 5)
    stage.run(lambda stage: not stage.state.merges.busy)
    due = stage.state.merges.due_at(draining=False)
    assert stage.now < due < stage.now + 0.2
    assert stage.state.until_tick(due - 0.01) == pytest.approx(0.01)
    assert stage.state.until_tick(due) == MIN_TICK_S


def test_evaluations_wait_for_the_merge_and_are_divided_among_the_servers():
    stage, *_ = two_servers(
        train_rows=4000, validation_rows=1000, epochs=2, eval_seconds=0.5, merge_rows=500
    )
    evaluated = []

    def look(stage):
        if stage.state.phase == "evaluate":
            models = [server.model for server in stage.members]
            evaluated.append(models[0] == models[1] == stage.model)
        return False

    stage.run(look)
    assert evaluated and all(evaluated)
    assert stage.finish.status == "finished"


def test_a_server_whose_model_is_not_finite_is_replaced():
    stage, one, two = two_servers(epochs=2)
    stage.run(lambda stage: stage.now > 0.5)
    two.finite = False
    stage.run()
    assert WorkerLost("server-1", "its model is not finite") in stage.records
    assert one.merged == rows_of(2, 5000)


def test_if_no_model_is_finite_all_are_rolled_back_and_training_goes_on():
    stage, one, two = two_servers(epochs=2)
    stage.run(lambda stage: stage.state.merges.number > 2)
    one.finite = two.finite = False
    stage.bad = "layers.0.weight[1, 2]"
    stage.run(lambda stage: stage.state.recovery.rollbacks.total == 1)
    before = stage.state.merges.number
    stage.run()
    assert stage.finish.status == "finished" and stage.state.merges.number > before
    assert one.merged == two.merged


def test_a_server_that_does_not_answer_to_a_step_is_lost():
    stage, one, two = two_servers()
    serve = stage._serve
    stage._serve = lambda server, message: (
        None if (server is two and type(message).__name__ == "Reduce") else serve(server, message)
    )
    stage.run()
    assert one.merged == rows_of(1, 5000)
    (lost,) = stage.recorded(WorkerLost)
    assert lost.reason == "did not finish its part of a merge in time"


def test_a_run_whose_servers_are_all_lost_keeps_the_last_copy_of_their_model():
    stage, *_ = two_servers(train_rows=20_000)
    stage.run(lambda stage: stage.model.total() > 0 and stage.state.merges.number == 3)
    stage.kill("a"), stage.kill("b", "killed\nthe last lines of its log")
    stage.run()
    reason = "all servers that had the model are lost (killed)"
    assert stage.finish == Finish("failed", reason, model_lost=True)
    assert stage.kept == stage.model and stage.kept.total() > 0
    assert not any(each.deaths for each in stage.state.epochs.rows.unfinished)


def test_the_first_merged_model_is_copied_with_a_checkpoint():
    stage, *_ = two_servers(train_rows=20_000, checkpoint_seconds=60)
    stage.run(lambda stage: stage.recorded(CheckpointBegins))
    assert stage.state.merges.number == 1
    (begun,) = stage.recorded(CheckpointBegins)
    stage.run(lambda stage: stage.state.merges.number == 2)
    assert stage.model.total() == begun.rows > 0


def test_no_model_is_kept_if_all_servers_are_lost_before_it_was_copied():
    stage, *_ = two_servers(train_rows=20_000)
    stage.run(lambda stage: stage.state.merges.number == 1 and stage.state.merges.step == "apply")
    stage.kill("a"), stage.kill("b")
    stage.run()
    assert stage.finish.model_lost and stage.kept is None


def test_a_copy_of_the_model_that_fails_is_repeated():
    stage, one, two = two_servers(validation_rows=10)
    stage.failing_copies = 1
    stage.run(lambda stage: stage.state.phase == "evaluate")
    assert stage.failing_copies == 0 and stage.model == one.merged
    stage.run()
    assert stage.finish.status == "finished"
    assert one.merged == two.merged == rows_of(1, 5000)


def test_a_server_that_joins_while_the_source_of_its_model_dies_gets_another_one():
    stage, *_ = two_servers(train_rows=20_000, merge_rows=500)
    stage.run(lambda stage: stage.now > 1.0)
    stage.join("c")
    stage.run(lambda stage: stage.state.merges._loading == "c")
    stage.silence("a")
    stage.run()
    assert stage.servers["c"].merged == stage.servers["b"].merged == rows_of(1, 20_000)


def test_failures_to_load_a_server_are_not_those_of_the_next_one():
    stage = ServersStage(train_rows=20_000, merge_rows=500)
    stage.join("a")
    stage.run(lambda stage: stage.now > 1.0)
    stage.unloadable.update(b=9, c=1)
    stage.join("b")
    stage.run(lambda stage: stage.recorded(WorkerLost))
    stage.join("c")
    stage.run()
    assert [event.reason for event in stage.recorded(WorkerLost)] == ["no room"]
    assert stage.servers["c"].merged == rows_of(1, 20_000)


def test_weights_are_those_of_adaptive_sgd_or_one():
    for rule, weights in (("sum", [1.0, 1.0]), ("average", [0.5, 0.5])):
        stage = ServersStage(train_rows=2000, start_with=2, rule=rule)
        stage.join("a"), stage.join("b")
        stage.run()
        merges = stage.recorded(ServersMerged)
        assert merges[0].weights == weights


def test_connected_servers_collect_and_sum_at_once():
    stage, *_ = two_servers()
    received = []
    serve = stage._serve
    stage._serve = lambda server, message: (
        received.append((server.key, message)),
        serve(server, message),
    )
    stage.run()
    collects = [message for key, message in received if isinstance(message, Collect)]
    sums = [message for key, message in received if isinstance(message, Reduce)]
    assert len(collects) == 2, "in the first merge, before the servers are connected"
    assert len(sums) > 4 and [each.collect for each in sums] == [False] * 2 + [True] * (
        len(sums) - 2
    )


def test_a_worker_that_is_no_server_is_refused():
    hello = Hello("cpu", "cpu:2", 1, 7, PACKAGE, FINGERPRINT)
    (refused,) = ServersStage().state.receive("x", hello, 0.0)
    assert "expected a server" in str(refused)


@pytest.mark.parametrize("message", [Collected(1, 1, 1, 1, True), ServerWorkers()])
def test_a_message_of_a_server_from_a_worker_that_is_none_is_counted_and_ignored(message):
    stage = Stage("w")
    assert stage.receive("w", message) == []
    assert stage.state.accounting.faults["messages_refused"] == 1


@max_examples(60)
@given(
    st.lists(
        st.tuples(
            st.floats(0.01, 1.0),
            st.sampled_from(["join", "kill", "silence", "slow join", "not finite"]),
            st.integers(0, 3),
        ),
        max_size=12,
    ),
    st.integers(200, 4000),
    st.integers(1, 3),
)
def test_every_row_is_merged_exactly_once_as_servers_join_and_die(acts, rows, epochs):
    stage = ServersStage(
        train_rows=rows, validation_rows=100, epochs=epochs, merge_rows=max(1, rows // 10)
    )
    joined = 0
    stage.join("s0")
    for pause, act, place in acts:
        then = stage.now + pause
        stage.run(lambda stage, then=then: stage.now >= then)
        if stage.finish is not None:
            break
        if "join" in act:
            joined += 1
            stage.join(f"s{joined}", row_seconds=3e-3 if "slow" in act else 1e-3)
        elif place < len(stage.members):
            victim = stage.members[place]
            if not any(each.finite for each in stage.members if each is not victim):
                continue  # no server would be left, or the model would be rolled back
            match act:
                case "kill":
                    stage.kill(victim.key)
                case "silence":
                    stage.silence(victim.key)
                case "not finite":
                    victim.finite = False
    stage.run()
    assert stage.finish.status == "finished"
    assert stage.members
    for server in stage.members:
        assert server.merged == rows_of(epochs, rows)
