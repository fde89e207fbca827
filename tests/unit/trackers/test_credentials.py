from hogbatch.errors import UsageError
from hogbatch.trackers.credentials import MAX_REASON, describe_error, without_credentials


def test_credentials_are_removed():
    environment = {"WANDB_API_KEY": "abcdef0123", "MLFLOW_TRACKING_TOKEN": "t0ken", "HOME": "/home"}
    text = "GET http://me:hunter2@host:5000/api?key=abcdef0123 with t0ken from /home"
    cleaned = without_credentials(text, environment)
    assert cleaned == "GET http://***@host:5000/api?key=*** with *** from /home"


def test_empty_variables_change_nothing():
    assert without_credentials("a text", {"WANDB_API_KEY": "", "TOKEN": "a"}) == "a text"


def test_an_error_is_one_short_sentence():
    assert describe_error(ValueError("first.\nsecond"), {}) == "ValueError: first"
    assert describe_error(KeyError(), {}) == "KeyError"
    assert describe_error(UsageError("got x"), {}) == "got x"
    assert describe_error(OSError(28, "No space left", "/x"), {}) == "No space left: /x"
    assert len(describe_error(ValueError("x" * 1000), {})) == MAX_REASON
