"""A view of a run on a terminal, updated in place while the run trains."""
