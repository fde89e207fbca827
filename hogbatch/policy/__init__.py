"""Batch policies: numbers in, numbers out. No socket, clock, process or device in here."""
