"""The commands, one a file; each has a `main` that takes arguments and returns an exit code.

A module that takes long to import is imported when a command runs, so that `--help` is fast.
"""
