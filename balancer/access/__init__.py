"""Who may come in: access keys, roles, and the limits of a caller.

`identity` is what the rest of the balancer may know of a key's holder.
May import: `shared`. Comes in: `api`, `management`, the fleet's core, the daemon.
"""
