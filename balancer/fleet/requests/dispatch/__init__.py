"""Dispatch: assigns requests and parts of queries to agents.

`dispatch` has one method for each event. It finds a request for a free slot, or an agent for a
request, and sorts the agents with free slots. `fair_queue` decides which request is next, from
priority classes and the fair shares of callers. It uses `fair_order` (start-time fair queueing) on
two levels.
"""
