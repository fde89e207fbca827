"""The commands of the program: each reads its arguments and calls the package that does it.

The docstring of a command is its summary in the help.
"""
