"""Routing: chooses the agent of a request, by cached prefixes, speeds and costs.

All modules are pure. Dispatch decides which request is next; routing decides which agent is best
for it.
"""
