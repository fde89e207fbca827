"""Starting worker processes: which ones, on which cores, and their restarts."""
