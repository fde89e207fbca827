"""Errors in words, and texts without credentials, to show to the user."""

import re
from collections.abc import Mapping
from typing import Final

from hogbatch.errors import HogbatchError

SECRET: Final = re.compile(r"KEY|TOKEN|PASSWORD|SECRET|CREDENTIAL", re.IGNORECASE)
HIDDEN: Final = "***"
MIN_LENGTH: Final = 4  # shorter values are words that occur elsewhere
MAX_REASON: Final = 300  # characters


def without_credentials(text: str, environment: Mapping[str, str]) -> str:
    """Replace user names and passwords in URLs, and values of secret environment variables."""
    for name, value in environment.items():
        if SECRET.search(name) and len(value) >= MIN_LENGTH:
            text = text.replace(value, HIDDEN)
    return re.sub(r"(?<=://)[^/@\s]+@", f"{HIDDEN}@", text)


def describe_error(error: BaseException, environment: Mapping[str, str]) -> str:
    """The kind and the first line of an error, without credentials."""
    if isinstance(error, HogbatchError):
        text = str(error)
    elif isinstance(error, OSError) and error.strerror:
        text = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    else:
        first = next(iter(str(error).strip().splitlines()), "")
        text = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return without_credentials(text, environment)[:MAX_REASON].rstrip(". ")
