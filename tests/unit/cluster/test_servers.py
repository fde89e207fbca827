import pytest

from hogbatch.cluster.servers import requested


@pytest.mark.parametrize(
    ("text", "threads", "gpus"),
    [("cpu:auto,gpu:all", 8, 2), ("cpu:3", 3, 0), ("cpu:3,gpu:1", 3, 1), ("cpu:auto", 8, 0)],
)
def test_what_a_server_with_eight_cores_and_two_gpus_gets(text, threads, gpus):
    assert requested(text, 8, 2) == (threads, gpus)
