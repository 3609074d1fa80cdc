"""One request's answer: the engine's tokens in, items for the balancer out.

`prepared` is what preparation hands to the engine and the answer. An answer that another agent
began is replayed: `resumption` says where the engine goes on, `delivered` what is left out.
"""
