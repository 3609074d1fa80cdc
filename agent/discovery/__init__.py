"""All balancers of an agent: which addresses their names have, and a connection to each.

May import: the link to one balancer. Comes in: the daemon, and the supervisor's stand-in.
"""
