"""The folder of model files: what is stored, who uses it, what is evicted.

Several agents of a host may share it; locks on files keep them apart.
Lives here: the folder's layout, locks, the choice of what to evict, checksums.
"""
