import struct
from contextlib import suppress
from typing import get_args

import msgspec
import pytest
from hypothesis import given, strategies as st

from hogbatch.wire.codec import (
    PREFIX,
    PROTOCOL,
    BadFrame,
    OtherVersion,
    decode_to_coordinator,
    decode_to_worker,
    encode,
)
from hogbatch.wire.messages import MAX_LISTED, Done, ServerWorkers, ToCoordinator, ToWorker
from hogbatch.wire.sockets import MAX_FRAME
from tests.support.garbage_messages import MESSAGES, done as raw_done, raw
from tests.support.property_tests import max_examples
from tests.support.wire_messages import (
    DONE,
    HELLO,
    LARGEST,
    SERVER_WORKER,
    TO_COORDINATOR,
    TO_WORKER,
    WORK,
)

COUNTS = st.integers(0, LARGEST)
AMOUNTS = st.floats(0.0, 1e300)
BAD_COUNTS = [-1, LARGEST + 1, 2**64 - 1, 1.5, "1", None]
BAD_AMOUNTS = [-1e-9, float("nan"), float("inf"), float("-inf"), 1.1e300, "1", None]


def test_the_examples_cover_both_unions():
    assert {type(message) for message in TO_WORKER} == set(get_args(ToWorker))
    assert {type(message) for message in TO_COORDINATOR} == set(get_args(ToCoordinator))


@pytest.mark.parametrize(
    ("message", "read", "refuse"),
    [
        *((message, decode_to_worker, decode_to_coordinator) for message in TO_WORKER),
        *((message, decode_to_coordinator, decode_to_worker) for message in TO_COORDINATOR),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_message_is_read_by_those_it_is_for(message, read, refuse):
    assert read(encode(message)) == message
    with pytest.raises(BadFrame):
        refuse(encode(message))


@max_examples(200)
@given(
    st.builds(
        Done,
        *(COUNTS, COUNTS, COUNTS, AMOUNTS, AMOUNTS, COUNTS, st.tuples(AMOUNTS)),
        *(AMOUNTS, COUNTS, AMOUNTS, COUNTS),
    )
)
def test_every_done_within_the_bounds_comes_back_to_the_bit(done):
    assert decode_to_coordinator(encode(done)) == done


@pytest.mark.parametrize("message", [DONE, WORK], ids=["Done", "Lease"])
def test_the_messages_of_every_lease_are_some_dozens_of_bytes(message):
    assert len(encode(message)) <= 180


def test_a_done_of_an_earlier_version_has_no_noise():
    fields = msgspec.structs.astuple(DONE)
    assert DONE.noise is not None and Done.__struct_fields__[-1] == "noise"
    earlier = decode_to_coordinator(raw("done", *fields[:-1]))
    assert earlier == msgspec.structs.replace(DONE, noise=None)


def raw_workers(*workers, others=0):
    return raw("serverworkers", workers, others)


def worker_fields(**changes):
    return msgspec.structs.asdict(SERVER_WORKER) | changes


def raw_worker(**changes):
    return raw_workers(worker_fields(**changes))


DONE_COUNTS = ("lease", "rows", "updates", "skipped", "refused", "too_large", "transferred")
DONE_AMOUNTS = ("seconds", "loss", "staleness", "merge_seconds", "transfer_seconds")


@pytest.mark.parametrize(
    ("frame", "name", "values"),
    [
        *((raw_done, name, BAD_COUNTS) for name in DONE_COUNTS),
        *((raw_done, name, BAD_AMOUNTS) for name in DONE_AMOUNTS),
        (raw_done, "metric_sums", [[0.5, value] for value in BAD_AMOUNTS]),
        (raw_done, "noise", [[value, 0.5, 1.0, 0.5, 1.0] for value in BAD_AMOUNTS]),
        (raw_done, "noise", [[0.5, value, 1.0, 0.5, 1.0] for value in BAD_AMOUNTS[1:]]),
        (raw_done, "noise", [[1.0, 0.5, 0.5], 1.0]),
        *((raw_worker, name, ["x" * 65, 1, None]) for name in ("name", "device", "state")),
        (raw_worker, "threads", [0, 4097, 1.5]),
        *((raw_worker, name, BAD_COUNTS) for name in ("batch_size", "rows", "updates")),
        (raw_worker, "busy", [*BAD_AMOUNTS, 1.001]),
    ],
)
def test_a_value_outside_its_bounds_is_refused(frame, name, values):
    for value in values:
        with pytest.raises(BadFrame):
            decode_to_coordinator(frame(**{name: value}))


@pytest.mark.parametrize(
    "frame",
    [
        *(frames[0] for frames in MESSAGES.values() if len(frames) == 1),
        *(raw("ready", [point]) for point in ((64, 0.0), (64, 1e7), (0, 1.0), (2**41, 1.0))),
        raw("ready", [], 1, 1, [1e7, 0.0]),
        raw(),
        raw_workers(*[worker_fields()] * (MAX_LISTED + 1)),
        raw_workers(worker_fields(), others=-1),
        raw_workers({"name": "cpu-0", "device": "cpu"}),
    ],
)
def test_a_frame_that_is_no_message_is_refused(frame):
    with pytest.raises(BadFrame):
        decode_to_coordinator(frame)


def test_the_largest_description_of_the_workers_of_a_server_fits_into_a_frame():
    numbers = dict.fromkeys(("batch_size", "rows", "updates"), LARGEST)
    long = worker_fields(name="数" * 64, device="数" * 64, **numbers)
    frame = raw_workers(*[long] * MAX_LISTED, others=LARGEST)
    assert len(frame) < MAX_FRAME / 4
    message = decode_to_coordinator(frame)
    assert isinstance(message, ServerWorkers) and len(message.workers) == MAX_LISTED


def test_the_largest_numbers_and_texts_are_taken():
    assert decode_to_coordinator(raw_done(lease=LARGEST, loss=1e300)).lease == LARGEST
    assert decode_to_coordinator(raw("failed", "x" * 1000)).reason == "x" * 1000


@max_examples(200)
@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_raise_bad_frame_or_mean_something(noise, prefixed):
    frame = PREFIX + noise if prefixed else noise
    for decode, union in (decode_to_coordinator, ToCoordinator), (decode_to_worker, ToWorker):
        with suppress(BadFrame):
            assert isinstance(decode(frame), union)


@max_examples(150)
@given(st.sampled_from(TO_COORDINATOR), st.integers(4, 200), st.integers(0, 255))
def test_a_message_with_a_wrong_byte_raises_bad_frame_or_means_something(message, place, byte):
    frame = bytearray(encode(message))
    frame[place % len(frame)] = byte
    with suppress(BadFrame):
        assert isinstance(decode_to_coordinator(bytes(frame)), ToCoordinator)


@pytest.mark.parametrize("theirs", [0, PROTOCOL + 1, 65535])
@pytest.mark.parametrize("rest", [b"", b"\xff\xff", encode(HELLO)[4:]])
def test_another_protocol_version_is_named_whatever_follows(theirs, rest):
    with pytest.raises(OtherVersion) as raised:
        decode_to_coordinator(b"HB" + struct.pack("<H", theirs) + rest)
    assert raised.value.theirs == theirs
    assert str(PROTOCOL) in str(raised.value)
