"""Numbers of flags that are not settings of a run. UsageError names the flag and the range."""

from hogbatch.errors import UsageError


def positive(flag: str, text: str) -> float:
    """A finite number above 0."""
    value = _number(text)
    if not 0.0 < value < float("inf"):
        raise UsageError(f"{flag}: expected a number above 0; got {text!r}")
    return value


def up_to_one(flag: str, text: str) -> float:
    """A number above 0, at most 1."""
    value = _number(text)
    if not 0.0 < value <= 1.0:
        raise UsageError(f"{flag}: expected a number above 0, at most 1; got {text!r}")
    return value


def whole(flag: str, text: str, least: int, most: int) -> int:
    """A whole number from `least` to `most`."""
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise UsageError(f"{flag}: expected a whole number from {least} to {most}; got {text!r}")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
