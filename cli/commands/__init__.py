"""The commands, one a file; each has a `main` that takes arguments and returns an exit code.

What takes long to import is imported when a command runs, so that `--help` answers at once.
"""
