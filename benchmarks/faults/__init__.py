"""The cost of faults. One module per question; see __main__.py."""
