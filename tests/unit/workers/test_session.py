import threading

import msgspec
import pytest

from hogbatch.config.layers import DenseLayer
from hogbatch.errors import DeviceError, HogbatchError, ProtocolError, UsageError
from hogbatch.model.network import Network
from hogbatch.version import version
from hogbatch.wire.messages import (
    Done,
    Failed,
    Goodbye,
    Heartbeat,
    Hello,
    Lease,
    Ready,
    Refused,
    Stop,
)
from hogbatch.workers import session
from tests.unit.workers.conftest import FEATURES, ROWS, WITHIN_S, welcome

WORK = Lease(1, "train", 0, 0, ROWS, 2, 0.1, 0)
DONE = Done(1, ROWS, 3, 0.5, 1.5, 0, ())


def test_a_session_from_hello_to_stop(rig):
    hello = rig.start().hear()
    assert isinstance(hello, Hello)
    assert (hello.device, hello.name, hello.threads) == ("cpu", "cpu:2", 2)
    assert (hello.package, hello.fingerprint) == (version(), "a-fingerprint")
    rig.engine.on_submit = lambda work: rig.engine.post(DONE)
    rig.tell(welcome())
    assert rig.hear() == Ready(((16, 0.5),))
    rig.tell(WORK)
    assert rig.hear() == DONE
    assert rig.engine.submitted == [WORK]
    rig.tell(Stop())
    assert rig.ended.result(WITHIN_S) is None


def test_the_engine_gets_the_contents_of_catalog_and_welcome(started, segments):
    layers = DenseLayer(FEATURES, 4, "relu"), DenseLayer(4, 2, "linear", output_major=True)
    given = msgspec.structs.replace(welcome(), layers=layers)
    started.tell(given)
    started.hear()
    (assignment,) = started.engine.prepared
    assert assignment.welcome == given
    expected = Network.build(FEATURES, (4,), 2, "relu", "squared", output_major=True)
    assert assignment.network == expected
    assert assignment.train.rows == ROWS and not assignment.held_out
    assert assignment.data is segments["data"]
    segments["shared"].array("fences")[4] = 7
    assert assignment.fence.tolist() == [7] * 8
    segments["shared"].array("model/params")[5] = 2
    assert assignment.model.params[5] == 2


def test_waiting_work_is_passed_on_in_order(working):
    for lease in range(1, 4):
        working.tell(Lease(lease, "train", 0, 0, ROWS, 2, 0.1, 0))
    working.tell(Stop())
    working.ended.result(WITHIN_S)
    assert [work.number for work in working.engine.submitted] == [1, 2, 3]


def test_a_refused_worker_fails_with_the_reason(started):
    started.tell(Refused("other data"))
    with pytest.raises(ProtocolError, match="refused this worker: other data"):
        started.ended.result(WITHIN_S)


def test_a_coordinator_that_never_answers_is_an_error(rig, monkeypatch):
    monkeypatch.setattr(session, "BEAT_S", 0.01)
    monkeypatch.setattr(session, "WELCOME_WITHIN_S", 0.05)
    with pytest.raises(ProtocolError, match="no answer from the coordinator"):
        rig.start().ended.result(WITHIN_S)


def test_a_coordinator_that_has_ended_meanwhile_is_an_error(rig, coordinator):
    coordinator.kill()
    coordinator.wait()
    with pytest.raises(UsageError, match=f"the coordinator, process {coordinator.pid}, has ended"):
        rig.start().ended.result(WITHIN_S)


@pytest.mark.parametrize("when", ["started", "working"])
def test_the_end_of_the_coordinator_ends_the_worker(when, coordinator, request):
    rig = request.getfixturevalue(when)
    coordinator.kill()
    assert rig.ended.result(WITHIN_S) is None


def test_an_error_in_prepare_is_reported_up_to_the_limit_of_messages_and_raised(started):
    def refuse():
        raise DeviceError("x" * 5000)

    started.engine.on_prepare = refuse
    started.tell(welcome())
    assert started.hear() == Failed(f"DeviceError: {'x' * 5000}"[:1000])
    with pytest.raises(DeviceError, match="xxx"):
        started.ended.result(WITHIN_S)


@pytest.mark.parametrize("posted", [DeviceError("no"), Failed("DeviceError: no")], ids=type)
def test_a_failed_lease_is_reported_after_earlier_results_and_ends_the_worker(working, posted):
    def compute(work):
        for message in (DONE, posted):
            working.engine.post(message)

    working.engine.on_submit = compute
    working.tell(WORK)
    assert [working.hear(), working.hear()] == [DONE, Failed("DeviceError: no")]
    with pytest.raises(HogbatchError, match="no") as raised:
        working.ended.result(WITHIN_S)
    assert isinstance(posted, Failed) or raised.value is posted


def test_results_are_sent_before_goodbye(working):
    finish = threading.Event()

    def compute(work):
        finish.wait(WITHIN_S)
        working.engine.post(DONE)
        working.session.leave()

    working.engine.on_submit = lambda work: threading.Thread(target=compute, args=(work,)).start()
    working.tell(WORK)
    finish.set()
    assert [working.hear(), working.hear()] == [DONE, Goodbye()]


def test_heartbeats_are_sent_while_the_engine_prepares_and_computes(rig, monkeypatch):
    prepare, compute, compiling = (threading.Event() for _ in range(3))
    monkeypatch.setattr(session, "compiles", compiling.is_set)
    rig.engine.on_prepare = lambda: prepare.wait(WITHIN_S)

    def work_on(work):
        compute.wait(WITHIN_S)
        rig.engine.post(DONE)

    rig.engine.on_submit = lambda work: threading.Thread(target=work_on, args=(work,)).start()
    rig.start().hear()
    rig.tell(msgspec.structs.replace(welcome(), beat_seconds=0.01))
    assert [rig.hear(beats=True) for _ in range(5)] == [Heartbeat()] * 5
    compiling.set()
    while not rig.hear(beats=True).compiling:
        pass
    prepare.set()
    assert isinstance(rig.hear(), Ready)
    compiling.clear()
    rig.tell(WORK)
    while rig.hear(beats=True).compiling:
        pass
    assert [rig.hear(beats=True) for _ in range(5)] == [Heartbeat()] * 5
    compute.set()
    assert rig.hear() == DONE
