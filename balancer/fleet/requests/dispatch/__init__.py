"""Dispatch: gives requests, and parts of queries, to agents.

`dispatch` takes events: how a slot finds its request, and a request its agent. `fair_queue` says
which request is next, by classes and shares for callers; `fair_order` is the start-time fair
queueing of which it has two levels. `slots` ranks the agents with free ones.
"""
