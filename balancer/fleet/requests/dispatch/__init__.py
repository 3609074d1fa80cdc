"""Which request goes to which agent.

`dispatch` takes events; `assignments` is how a slot finds its request. Three parts keep what these
need: `slots` of the agents, `ranks` of those with free slots, `holds` of requests for one agent.
May import: the fleet's vocabulary, `routing`, `fair_queue`. Comes in: the rest of `requests`.
"""
