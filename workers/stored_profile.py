"""The file in which the measurements of a device are stored for later starts."""

import logging
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import msgspec

MAX_AGE = timedelta(days=30)

Rows = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class StoredProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measured speeds, and the circumstances of the measurement."""

    densify: bool  # see MeasuredSpeeds
    profile: Annotated[tuple[tuple[Rows, Seconds], ...], msgspec.Meta(min_length=1)]
    date: Annotated[datetime, msgspec.Meta(tz=True)]
    device: str
    state: dict[str, str]  # see Device.state

    def is_current(self, now: datetime, driver: str) -> bool:
        """Whether the speeds are still valid at `now` with this driver ("": unknown)."""
        recorded = self.state.get("driver", "")
        same_driver = not driver or not recorded or driver == recorded
        return same_driver and timedelta() <= now - self.date <= MAX_AGE


def load(path: Path) -> StoredProfile | None:
    """Return the profile stored at `path`; None if there is none, or in another format."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=StoredProfile)
    except (FileNotFoundError, msgspec.ValidationError):
        return None
    except (OSError, msgspec.DecodeError) as error:
        logging.warning("%s is corrupt (%s): measuring again", path, error)
        return None


def save(path: Path, stored: StoredProfile) -> None:
    """Store the speeds; a failure is only logged, because the next start can measure again."""
    partial = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(msgspec.json.encode(stored))
        partial.replace(path)
    except OSError as error:
        logging.warning("the device profile cannot be cached: %s", error)


def remove(path: Path, profile: tuple[tuple[int, float], ...]) -> None:
    """Remove the file if it still contains `profile`: another worker may have measured again."""
    stored = load(path)
    if stored is not None and stored.profile == profile:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            logging.warning("the device profile cannot be removed: %s", error)


def now() -> datetime:
    """The current date and time, in seconds."""
    return datetime.now(UTC).replace(microsecond=0)
