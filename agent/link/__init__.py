"""The agent's side of the socket to one balancer: a pure session under a thin connection.

Lives here: the session's decisions, the connection that carries them out, heartbeats, backoff,
the outbound queue, and slots.
May import: the port of `generation`, and the engine's statistics. Sequences, prompts and templates
are unknown here.
Comes in: the daemon, and the supervisor's stand-in.
"""
