"""Which agent gets a request: who holds its prefix, how fast each is, what a choice costs.

Pure. Dispatch decides which request is next, this room which agent is best for it.
"""
