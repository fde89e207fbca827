"""Numbers of flags that are not settings of a run. UsageError names the flag and the range."""

from hogbatch.errors import UsageError


def positive(flag: str, given: str) -> float:
    """A finite number above 0."""
    value = _number(given)
    if not 0.0 < value < float("inf"):
        raise UsageError(f"{flag}: expected a number above 0; got {given!r}")
    return value


def up_to_one(flag: str, given: str) -> float:
    """A number above 0, at most 1."""
    value = _number(given)
    if not 0.0 < value <= 1.0:
        raise UsageError(f"{flag}: expected a number above 0, at most 1; got {given!r}")
    return value


def whole(flag: str, given: str, least: int, most: int) -> int:
    """A whole number from `least` to `most`."""
    try:
        value = int(given)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise UsageError(f"{flag}: expected a whole number from {least} to {most}; got {given!r}")
    return value


def _number(given: str) -> float:
    try:
        return float(given)
    except ValueError:
        return float("nan")
