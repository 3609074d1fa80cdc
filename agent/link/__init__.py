"""The agent's side of the socket to one balancer: a pure session under a thin connection.

This package has the session's decisions, the connection that carries them out, dialling and
backoff, the socket with its codec, and slots.
"""
