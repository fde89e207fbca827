"""The server as Linux shows it: which cores this process may use, and how they hang together.

topology    arithmetic: how many threads, and which cores for whom
linux       reads the facts from /sys and /proc
"""
