"""Hands out the work. `state` and `ledger` decide; `loop` has the sockets and the clock."""
