"""Who may call what: the table of all routes, the keys in a request, and the middleware.

May import: `balancer.access`, `transport`. Comes in: both ports' apps.
"""
