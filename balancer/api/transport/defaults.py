"""Defaults of the ports' settings, in seconds.

They are in a file of their own, so that `--help` can show them without importing the server.
"""

HEADER_TIMEOUT = 10.0
WRITE_TIMEOUT = 30.0
MAX_CONNECTIONS = 4096

EARLY_HEADERS = 25.0
"""After this a stream over HTTP begins although its request still waits."""
