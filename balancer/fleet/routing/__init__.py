"""Chooses the agent for each request, from cached prefixes, agent speeds and costs.

All modules are pure. Dispatch decides which request is next. Routing decides which agent is best
for this request.
"""
