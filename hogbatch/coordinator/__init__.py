"""The coordinator of a run: `state` takes the decisions, `loop` has the sockets and the clock."""
