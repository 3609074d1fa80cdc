"""A trial on a machine with a GPU and no network: `scripts/gpu-trial pack`, and `run` over there.

`run` starts with nothing but Python's own library: the first step makes the environment of the
others.
"""
