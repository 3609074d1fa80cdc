"""Defaults of the ports' settings, in seconds.

They have a file of their own, so that `--help` can show them without importing the server.
"""

HEADER_TIMEOUT = 10.0
WRITE_TIMEOUT = 30.0
MAX_CONNECTIONS = 4096

EARLY_HEADERS = 25.0
"""A stream over HTTP begins after this time even if its request still waits."""
