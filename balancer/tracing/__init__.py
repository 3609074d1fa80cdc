"""What a trace shows of a request in the balancer.

Lives here: the span of a request and its parts, made at its end from what was measured.
"""
