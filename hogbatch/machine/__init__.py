"""The server: its cores, memory and limits, the cache directory, and terminal output.

topology     number of threads and assignment of cores: arithmetic only
linux        reads cores, memory and cgroup limits from /sys and /proc
budget       memory that can still be allocated
limits       other limits of the system: /proc, open files, file sizes
environment  versions, processor, memory and GPUs, for the record of a run
cachedir     the directory of compiled kernels and cached data
printable    text and numbers for terminals
process      the identity of a process, and the environment of workers
files        atomic writing of files and directories
allocator    whether freed memory is kept or returned to the system
"""
