"""TLS for both daemons and the client: certificates' dates, key pairs, contexts.

May import: no other module of Arriero. Comes in: whoever listens or dials.
"""
