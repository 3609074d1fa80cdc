"""Dispatch: gives requests, and parts of queries, to agents.

`dispatch` has one method for each event, and finds a request for a free slot or an agent for a
request. It also ranks the agents that have free slots. `fair_queue` decides which request is next,
by priority class and fair shares of callers. It uses `fair_order` (start-time fair queueing) on
two levels.
"""
