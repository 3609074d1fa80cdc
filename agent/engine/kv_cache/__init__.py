"""Who holds which cells of the KV cache; shared prefixes; eviction to host memory.

`UnifiedMemory` and `StreamMemory` are for models whose sequences can be cut, `CheckpointMemory` for
all others.
"""
