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


def raw(*fields):
    """A frame of this protocol with arbitrary, possibly invalid, fields."""
    return PREFIX + msgspec.msgpack.encode(fields)


def raw_done(**changes):
    return raw("done", *(changes.get(name, getattr(DONE, name)) for name in Done.__struct_fields__))


def test_the_examples_cover_both_unions():
    assert {type(message) for message in TO_WORKER} == set(get_args(ToWorker))
    assert {type(message) for message in TO_COORDINATOR} == set(get_args(ToCoordinator))


@pytest.mark.parametrize("message", TO_WORKER, ids=lambda m: type(m).__name__)
def test_a_worker_reads_what_the_coordinator_sent(message):
    assert decode_to_worker(encode(message)) == message


@pytest.mark.parametrize("message", TO_COORDINATOR, ids=lambda m: type(m).__name__)
def test_the_coordinator_reads_what_a_worker_sent(message):
    assert decode_to_coordinator(encode(message)) == message


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


@pytest.mark.parametrize("message", [DONE, WORK], ids=["Done", "Work"])
def test_the_messages_of_every_lease_are_some_dozens_of_bytes(message):
    assert len(encode(message)) <= 110


@pytest.mark.parametrize("message", TO_WORKER, ids=lambda m: type(m).__name__)
def test_a_worker_cannot_give_orders(message):
    with pytest.raises(BadFrame):
        decode_to_coordinator(encode(message))


@pytest.mark.parametrize("message", TO_COORDINATOR, ids=lambda m: type(m).__name__)
def test_the_coordinator_cannot_report_to_a_worker(message):
    with pytest.raises(BadFrame):
        decode_to_worker(encode(message))


@pytest.mark.parametrize(
    "name", ["lease", "rows", "updates", "skipped", "refused", "too_large", "transferred"]
)
def test_a_count_outside_its_bounds_is_refused(name):
    for value in BAD_COUNTS:
        with pytest.raises(BadFrame):
            decode_to_coordinator(raw_done(**{name: value}))


@pytest.mark.parametrize(
    "name", ["seconds", "loss", "staleness", "merge_seconds", "transfer_seconds"]
)
def test_an_amount_outside_its_bounds_is_refused(name):
    for value in BAD_AMOUNTS:
        with pytest.raises(BadFrame):
            decode_to_coordinator(raw_done(**{name: value}))


@pytest.mark.parametrize("value", BAD_AMOUNTS)
def test_amounts_inside_lists_have_bounds_too(value):
    for frame in (raw_done(metric_sums=[0.5, value]), raw("ready", [[64, value]])):
        with pytest.raises(BadFrame):
            decode_to_coordinator(frame)


def raw_workers(*workers, others=0):
    return raw("serverworkers", workers, others)


def worker_fields(**changes):
    return tuple((msgspec.structs.asdict(SERVER_WORKER) | changes).values())


@pytest.mark.parametrize(
    ("name", "values"),
    [
        *((name, ["x" * 65, 1, None]) for name in ("name", "device")),
        ("state", ["flies", "", 1, None]),
        ("threads", [0, 4097, 1.5]),
        *((name, BAD_COUNTS) for name in ("batch_size", "rows", "updates")),
        ("busy", [*BAD_AMOUNTS, 1.001]),
    ],
)
def test_the_workers_of_a_server_are_described_within_bounds(name, values):
    for value in values:
        with pytest.raises(BadFrame):
            decode_to_coordinator(raw_workers(worker_fields(**{name: value})))


@pytest.mark.parametrize(
    "frame",
    [
        raw_workers(*[worker_fields()] * (MAX_LISTED + 1)),
        raw_workers(worker_fields(), others=-1),
        raw_workers((*worker_fields(), 0)),
        raw_workers(worker_fields()[:-1]),
        raw_workers("cpu-0"),
    ],
    ids=["too many", "negative", "one field more", "one field less", "a text"],
)
def test_other_descriptions_of_the_workers_of_a_server_are_refused(frame):
    with pytest.raises(BadFrame):
        decode_to_coordinator(frame)


def test_the_largest_description_of_the_workers_of_a_server_fits_into_a_frame():
    numbers = dict.fromkeys(("batch_size", "rows", "updates"), LARGEST)
    long = worker_fields(name="数" * 64, device="数" * 64, **numbers)
    frame = raw_workers(*[long] * MAX_LISTED, others=LARGEST)
    assert len(frame) < MAX_FRAME / 4
    message = decode_to_coordinator(frame)
    assert isinstance(message, ServerWorkers) and len(message.workers) == MAX_LISTED


@pytest.mark.parametrize(
    "frame",
    [
        raw("failed", "x" * 1001),
        raw("hello", "cpu", "x" * 1001, 1, 1, "0.1.0", "abc"),
        raw("hello", "cpu", "cpu", 1, 1, "0.1.0", "x" * 1001),
        raw("hello", "tpu", "tpu", 1, 1, "0.1.0", "abc"),
        raw("hello", "cpu", "cpu", 0, 1, "0.1.0", "abc"),
        raw("hello", "cpu", "cpu", 4097, 1, "0.1.0", "abc"),
        raw("hello", "cpu"),
        raw("dance"),
        raw(),
        PREFIX,
        PREFIX + b"\xa1\xff",  # text that is no UTF-8
        PREFIX + b"\x91" * 5000,  # lists in lists in lists
        encode(HELLO) + b"\x00",
        encode(HELLO)[:-1],
        b"",
        b"HB",
        b"GET / HTTP/1.1",
    ],
)
def test_a_frame_that_is_no_message_is_refused(frame):
    with pytest.raises(BadFrame):
        decode_to_coordinator(frame)


def test_the_largest_numbers_and_texts_are_taken():
    assert decode_to_coordinator(raw_done(lease=LARGEST, loss=1e300)).lease == LARGEST
    assert decode_to_coordinator(raw("failed", "x" * 1000)).reason == "x" * 1000


@max_examples(400)
@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_raise_bad_frame_or_mean_something(noise, prefixed):
    frame = PREFIX + noise if prefixed else noise
    for decode, union in (decode_to_coordinator, ToCoordinator), (decode_to_worker, ToWorker):
        with suppress(BadFrame):
            assert isinstance(decode(frame), union)


@max_examples(300)
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
