"""`hogbatch doctor`: checks this machine and this installation.

`reading` reads facts, `checks` decides about them without reading anything, `text` shows the
checks. Nothing here trains or compiles kernels.
"""
