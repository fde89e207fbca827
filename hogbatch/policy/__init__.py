"""Batch policies: pure functions of numbers, without sockets, clocks, processes or devices."""
