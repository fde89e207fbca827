import threading

import msgspec
import pytest

from hogbatch.config.layers import DenseLayer
from hogbatch.errors import DeviceError, HogbatchError, ProtocolError
from hogbatch.model.network import Network
from hogbatch.version import version
from hogbatch.wire.messages import (
    Done,
    Failed,
    Goodbye,
    Heartbeat,
    Hello,
    Ready,
    Refused,
    Stop,
    Work,
)
from hogbatch.workers import session
from tests.unit.workers.conftest import FEATURES, ROWS, WITHIN_S, welcome

WORK = Work(1, "train", 0, 0, ROWS, 2, 0.1, 0)
DONE = Done(1, ROWS, 3, 0.5, 1.5, 0, ())


def test_hello_describes_the_worker(rig):
    hello = rig.start().hear()
    assert isinstance(hello, Hello)
    assert (hello.device, hello.name, hello.threads) == ("cpu", "cpu:2", 2)
    assert (hello.package, hello.fingerprint) == (version(), "a-fingerprint")


def test_a_session_from_hello_to_stop(started):
    started.engine.on_submit = lambda work: started.engine.post(DONE)
    started.tell(welcome())
    assert started.hear() == Ready(((16, 0.5),))
    started.tell(WORK)
    assert started.hear() == DONE
    assert started.engine.submitted == [WORK]
    started.tell(Stop())
    assert started.ended.result(WITHIN_S) is None


def test_the_engine_gets_the_contents_of_catalog_and_welcome(working, segments):
    (assignment,) = working.engine.prepared
    assert assignment.welcome == welcome()
    assert assignment.train.rows == ROWS and assignment.test is None
    assert assignment.data is segments["data"]
    assert assignment.network.layer_views()[0].width == 1
    segments["shared"].array("fences")[4] = 7
    assert assignment.fence.tolist() == [7] * 8
    segments["shared"].array("model/params")[5] = 2
    assert assignment.model.params[5] == 2


def test_the_network_is_that_of_the_welcome(started):
    layers = DenseLayer(FEATURES, 4, "relu"), DenseLayer(4, 2, "linear", output_major=True)
    started.tell(msgspec.structs.replace(welcome(), layers=layers))
    started.hear()
    (assignment,) = started.engine.prepared
    expected = Network.build(FEATURES, (4,), 2, "relu", "squared", output_major=True)
    assert assignment.network == expected


def test_waiting_work_is_passed_on_in_order(working):
    for lease in range(1, 4):
        working.tell(Work(lease, "train", 0, 0, ROWS, 2, 0.1, 0))
    working.tell(Stop())
    working.ended.result(WITHIN_S)
    assert [work.lease for work in working.engine.submitted] == [1, 2, 3]


def test_a_refused_worker_fails_with_the_reason(started):
    started.tell(Refused("other data"))
    with pytest.raises(ProtocolError, match="refused this worker: other data"):
        started.ended.result(WITHIN_S)


def test_a_coordinator_that_never_answers_is_an_error(rig, monkeypatch):
    monkeypatch.setattr(session, "BEAT_S", 0.01)
    monkeypatch.setattr(session, "WELCOME_WITHIN_S", 0.05)
    with pytest.raises(ProtocolError, match="no answer from the coordinator"):
        rig.start().ended.result(WITHIN_S)


@pytest.mark.parametrize("when", ["started", "working"])
def test_the_end_of_the_coordinator_ends_the_worker(when, coordinator, request):
    rig = request.getfixturevalue(when)
    coordinator.kill()
    assert rig.ended.result(WITHIN_S) is None


def test_an_error_in_prepare_is_reported_and_raised(started):
    def refuse():
        raise DeviceError("the GPU fell off the bus")

    started.engine.on_prepare = refuse
    started.tell(welcome())
    assert started.hear() == Failed("DeviceError: the GPU fell off the bus")
    with pytest.raises(DeviceError, match="fell off"):
        started.ended.result(WITHIN_S)


def test_a_failed_lease_is_reported_and_ends_the_worker(working):
    working.engine.on_submit = lambda work: working.engine.post(Failed("ValueError: no"))
    working.tell(WORK)
    assert working.hear() == Failed("ValueError: no")
    with pytest.raises(HogbatchError, match="ValueError: no"):
        working.ended.result(WITHIN_S)


def test_an_error_is_reported_after_earlier_results_and_raised(working):
    error = DeviceError("the GPU fell off the bus")

    def compute(work):
        for message in (DONE, error):
            working.engine.post(message)

    working.engine.on_submit = compute
    working.tell(WORK)
    assert working.hear() == DONE
    assert working.hear() == Failed("DeviceError: the GPU fell off the bus")
    with pytest.raises(DeviceError) as raised:
        working.ended.result(WITHIN_S)
    assert raised.value is error


def test_the_reason_of_a_failure_is_cut_to_the_limit_of_messages(started):
    def refuse():
        raise ValueError("x" * 5000)

    started.engine.on_prepare = refuse
    started.tell(welcome())
    assert len(started.hear().reason) == 1000


def test_a_leaving_worker_sends_goodbye(working):
    working.session.leave()
    assert working.hear() == Goodbye()
    assert working.ended.result(WITHIN_S) is None


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
    monkeypatch.setattr(session, "compiles", lambda: False)
    prepare, compute = threading.Event(), threading.Event()
    rig.engine.on_prepare = lambda: prepare.wait(WITHIN_S)

    def work_on(work):
        compute.wait(WITHIN_S)
        rig.engine.post(DONE)

    rig.engine.on_submit = lambda work: threading.Thread(target=work_on, args=(work,)).start()
    rig.start().hear()
    rig.tell(msgspec.structs.replace(welcome(), beat_seconds=0.01))
    assert [rig.hear(beats=True) for _ in range(5)] == [Heartbeat()] * 5
    prepare.set()
    assert isinstance(rig.hear(), Ready)
    rig.tell(WORK)
    assert [rig.hear(beats=True) for _ in range(5)] == [Heartbeat()] * 5
    compute.set()
    assert rig.hear() == DONE


def test_heartbeats_report_compilation(rig, monkeypatch):
    prepare, compiling = threading.Event(), threading.Event()
    monkeypatch.setattr(session, "compiles", compiling.is_set)
    rig.engine.on_prepare = lambda: prepare.wait(WITHIN_S)
    rig.start().hear()
    rig.tell(msgspec.structs.replace(welcome(), beat_seconds=0.01))
    assert rig.hear(beats=True) == Heartbeat()
    compiling.set()
    while not rig.hear(beats=True).compiling:
        pass
    prepare.set()
    assert isinstance(rig.hear(), Ready)
