"""Removes the user's names from a report, which is meant to be shown to others."""

import re

from hogbatch.doctor.facts import PrivateNames

SYSTEM_USERS = frozenset({"", "root"})  # not names of people


def redact(text: str, names: PrivateNames) -> str:
    """Shorten paths below the home directory to ~, and replace user names in other paths."""
    for home in sorted(names.homes - {"", "/"}, key=len, reverse=True):
        text = re.sub(rf"(?<![\w./-]){re.escape(home)}(?![\w.-])", "~", text)
    for user in names.users - SYSTEM_USERS:
        text = re.sub(rf"(?<=/){re.escape(user)}(?![\w.-])", "USER", text)
    return text
