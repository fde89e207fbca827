"""Divided data use the readers and the cache, and their tests the fixtures of these."""

from tests.unit.data.conftest import cache, messages, old_file, parsed, write

__all__ = ["cache", "messages", "old_file", "parsed", "write"]
