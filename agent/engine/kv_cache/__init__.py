"""The KV cache: holders of cells, shared prefixes, and eviction to host memory.

`UnifiedMemory` and `StreamMemory` are for models whose sequences can drop their last tokens,
`CheckpointMemory` for all other models.
"""
