"""One request's answer: the engine's tokens in, items for the balancer out.

`prepared` is the result of preparation for the engine and the answer. If another agent began the
answer, its tokens are replayed: `resumption` decides at which token the engine continues, and
`delivered` removes the items that the client already has.
"""
