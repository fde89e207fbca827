"""The commands of the program: each reads its arguments and calls the package that does it."""
