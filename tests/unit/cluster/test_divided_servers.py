"""Servers that hold some parts of the data each; the stage checks that they get no other rows."""

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from hogbatch.coordinator.commands import Finish
from hogbatch.coordinator.saved_state import save
from tests.support.property_tests import max_examples
from tests.support.servers_stage import ServersStage, rows_of


def stage_of(*parts, servers=None, epochs=1, copies=1, joins=True, **plan):
    """`servers` (as many as parts) with part p on servers p, p+1, ...; returns the stage too."""
    plan = {"merge_rows": 400, "start_with": servers or len(parts), "epochs": epochs, **plan}
    stage = ServersStage(train_rows=sum(parts), train_parts=parts, **plan)
    for place in range(len(parts) if joins else 0):
        stage.join(f"s{place}", parts=parts_at(place, len(parts), copies))
    return stage


def parts_at(place, count, copies):
    return tuple(sorted({(place - copy) % count for copy in range(copies)}))


def all_evaluated(stage, rows):
    """How often the rows [0, rows) were evaluated, from the leases of all servers."""
    found = Counter()
    for server in stage.servers.values():
        for start, stop in server.evaluated:
            found.update(range(start, stop))
    return [found[row] for row in range(rows)]


def test_the_others_go_on_and_merge_while_a_part_has_no_server():
    stage = stage_of(3000, 3000, 3000, wait_for_workers=30.0)
    stage.run(lambda stage: stage.now > 1.0)
    stage.kill("s1")
    stage.run(lambda stage: len(stage.state.workers) == 2)
    stage.run(lambda stage: not stage.state.epochs.rows.held)
    stage.run(lambda stage: not stage.state.merges.busy and not stage.state.epochs.rows.unmerged)
    rows = stage.state.epochs.rows
    assert rows.left((0, 2)) == 0 < rows.left((1,))
    assert stage.state.phase == "train" and stage.now < 10.0
    assert stage.members[0].merged == stage.members[1].merged
    stage.join("again", parts=(1,))
    stage.run()
    assert stage.finish.status == "finished"
    assert {each.key for each in stage.members} == {"s0", "s2", "again"}
    assert all(each.merged == rows_of(1, 9000) for each in stage.members)


def test_the_wait_for_a_part_starts_again_when_its_server_was_there():
    stage = stage_of(9000, 2000, wait_for_workers=30.0)
    stage.run(lambda stage: stage.now > 1.0)
    for attempt in range(3):
        stage.kill("s1" if attempt == 0 else f"again {attempt}")
        now = stage.now
        stage.run(lambda stage, now=now: stage.now > now + 25.0)
        stage.join(f"again {attempt + 1}", parts=(1,))
        now = stage.now
        stage.run(lambda stage, now=now: stage.now > now + 0.2)
    stage.run()
    assert stage.finish.status == "finished"


def test_a_part_whose_rows_are_done_is_not_missed():
    stage = stage_of(20_000, 500, wait_for_workers=5.0)
    stage.run(lambda stage: stage.state.epochs.rows.left((1,)) == 0)
    stage.run(lambda stage: not stage.state.workers["s1"].unmerged)
    stage.run(lambda stage: not stage.state.workers["s1"].leases)
    stage.run(lambda stage: not stage.state.workers["s1"].unmerged)
    stage.kill("s1")
    stage.run()
    assert stage.finish.status == "finished"


# Evaluation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("validation_parts", [(), (300, 500, 100)])
def test_test_rows_are_evaluated_where_they_are(validation_parts):
    stage = stage_of(
        *(2000, 1000, 1500), validation_rows=900, validation_parts=validation_parts, epochs=2
    )
    stage.run()
    assert stage.finish.status == "finished"
    counts = all_evaluated(stage, 900)
    assert counts[0] >= 1 and counts == [counts[0]] * 900


@pytest.mark.parametrize("average", [False, True])
def test_an_evaluation_is_repeated_for_a_server_that_replaces_a_lost_one(average):
    stage = stage_of(
        *(1000, 1000, 1000),
        validation_rows=3000,
        validation_parts=(1000, 1000, 1000),
        epochs=1,
        average=average,
    )
    leases = stage.state.leases
    stage.run(lambda stage: stage.state.phase == "evaluate")
    stage.kill("s1")
    stage.run(lambda stage: stage.state.phase == "drain")
    assert not leases.evaluated.held
    assert list(leases.evaluated.parts_left) == [1], "the others have done their parts"
    assert stage.shown == [True, False] * average
    stage.join("again", parts=(1,))
    stage.run()
    assert stage.finish.status == "finished"
    assert stage.shown == [True, False] * 2 * average
    assert all(each.merged == rows_of(1, 3000) for each in stage.members)
    assert stage.servers["again"].evaluated


@pytest.mark.parametrize("average", [False, True])
def test_an_interrupt_ends_a_wait_for_rows_to_evaluate(average):
    stage = stage_of(*(1000, 1000), validation_rows=500, validation_parts=(0, 500), average=average)
    stage.run(lambda stage: stage.state.phase == "evaluate")
    stage.kill("s1")
    stage.run(lambda stage: stage.state.phase == "drain")
    stage._execute(stage.state.interrupt(stage.now))
    stage.run(seconds=10.0)
    assert stage.finish.status == "stopped"
    assert stage.shown == [True, False] * average


def test_training_goes_on_while_a_part_of_the_test_set_has_no_server():
    stage = stage_of(
        *(50_000, 0),
        validation_rows=500,
        validation_parts=(0, 500),
        eval_seconds=2.0,
        wait_for_workers=30.0,
        part_names=("a.svm", "b.svm"),
    )
    stage.run(lambda stage: stage.now > 1.0)
    stage.kill("s1")
    stage.run(lambda stage: stage.now > 10.0)
    assert stage.state.phase == "train" and stage.state.progress.rows > 8000
    stage.join("again", parts=(1,))
    stage.run(lambda stage: stage.state.phase == "evaluate", seconds=2.0)
    stage.kill("again")
    stage.run()
    assert stage.finish == Finish("failed", "no server has had b.svm for 30 s")


def test_an_evaluation_is_repeated_when_all_servers_were_lost_in_it():
    stage = ServersStage(train_rows=1000, validation_rows=5000, start_with=2)
    stage.join("a"), stage.join("b")
    stage.run(lambda stage: stage.state.phase == "evaluate")
    stage.kill("a"), stage.kill("b")
    stage.run(lambda stage: not stage.state.workers)
    stage.join("c")
    stage.run(seconds=60.0)
    assert stage.finish.status == "finished"
    assert stage.members[0].merged == rows_of(1, 1000)


# Joining and resuming ---------------------------------------------------------------------------


def test_a_resumed_run_gives_the_rows_that_are_left_to_the_servers_that_have_them():
    stage = stage_of(2000, 2000, epochs=2)
    stage.run(lambda stage: stage.state.progress.rows > 1500)
    saved = save(stage.state, stage.now)
    done = rows_of(2, 4000)
    for start, stop, _ in saved.todo:
        done.subtract((0, row) for row in range(start, stop))
    done.subtract((1, row) for row in range(4000))
    assert sum(each.stop - each.start for each in saved.todo) == 4000 - saved.rows
    again = stage_of(2000, 2000, epochs=2, saved=saved)
    again.run()
    assert again.finish.status == "finished"
    assert again.members[0].merged + done == rows_of(2, 4000)


# Any order of events ----------------------------------------------------------------------------


@max_examples(60)
@given(
    st.lists(
        st.tuples(
            st.floats(0.01, 1.0),
            st.sampled_from(["join", "slow join", "kill", "kill", "silence"]),
            st.integers(0, 4),
        ),
        max_size=12,
    ),
    st.lists(st.integers(0, 1500), min_size=2, max_size=5).filter(any),
    st.integers(1, 3),
    st.sampled_from([1, 2]),
)
def test_every_row_is_merged_exactly_once_as_servers_join_and_die(acts, parts, epochs, copies):
    count = len(parts)
    stage = stage_of(
        *parts,
        copies=copies,
        epochs=epochs,
        validation_rows=10 * count,
        validation_parts=(10,) * count,
        merge_rows=max(1, sum(parts) // 10),
        eval_seconds=0.7,
    )
    joined = count

    def join(place, **speed):
        nonlocal joined
        joined += 1
        stage.join(f"s{joined}", parts=parts_at(place % count, count, copies), **speed)

    for pause, act, place in acts:
        then = stage.now + pause
        stage.run(lambda stage, then=then: stage.now >= then)
        if stage.finish is not None:
            break
        if "join" in act:
            join(place, row_seconds=3e-3 if "slow" in act else 1e-3)
        elif place < len(stage.members) and len(stage.members) > 1:
            victim = stage.members[place]
            stage.kill(victim.key) if act == "kill" else stage.silence(victim.key)
    if stage.finish is None:
        for place in range(count):
            join(place)
    stage.run()
    assert stage.finish.status == "finished"
    assert stage.members
    for server in stage.members:
        assert server.merged == rows_of(epochs, sum(parts))
