"""The server: its cores, its memory, its limits, where files may be cached, and terminal output.

topology    arithmetic: how many threads to use, and which cores for each
linux       reads the facts from /sys and /proc
"""
