"""The server: its cores, memory and limits, the cache directory, and terminal output.

topology     number of threads and assignment of cores: arithmetic only
linux        reads cores, memory and cgroup limits from /sys and /proc
budget       memory that can still be allocated
limits       other limits of the system: /proc, open files, file sizes
environment  versions, processor, memory and GPUs, for the record of a run
cachedir     the directory of compiled kernels and cached data
printable    text and numbers for terminals
"""
