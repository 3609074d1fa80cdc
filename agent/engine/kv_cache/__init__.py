"""The KV cache: holders of cells, shared prefixes, and eviction to host memory.

`UnifiedMemory` and `StreamMemory` are for models whose sequences can be cut, `CheckpointMemory` for
all others.
"""
