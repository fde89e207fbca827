import pytest

from hogbatch.cluster.servers import PerServer


@pytest.mark.parametrize(
    ("text", "threads", "gpus"),
    [("cpu:auto,gpu:all", 8, 2), ("cpu:3", 3, 0), ("cpu:3,gpu:1", 3, 1), ("cpu:auto", 8, 0)],
)
def test_what_a_server_with_eight_cores_and_two_gpus_gets(text, threads, gpus):
    asked = PerServer.parse(text)
    assert (asked.threads(8), asked.gpus(2)) == (threads, gpus)


def test_it_is_shown_as_it_was_given():
    assert str(PerServer.parse("cpu:auto,gpu:all")) == "cpu:auto,gpu:all"
    assert str(PerServer.parse("cpu:3")) == "cpu:3,gpu:0"
