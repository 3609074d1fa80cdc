"""One request's answer: the engine's tokens in, items for the balancer out.

`prepared` is the result of preparation for the engine and the answer. An answer that another agent
began is replayed: `resumption` decides where the engine continues, `delivered` removes what the
client already has.
"""
