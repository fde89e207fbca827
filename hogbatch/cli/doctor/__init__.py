"""`hogbatch doctor`: checks this machine and this installation.

`reading` reads values, `checks` decides about them, `command` has the table of all checks. Nothing
here trains or compiles kernels.
"""
