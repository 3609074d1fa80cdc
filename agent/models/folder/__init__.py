"""The folder of model files: what is stored, who uses it, what is evicted.

Several agents of a host may share it; locks on files keep them apart.
Lives here: the folder's layout, locks, the choice of what to evict, checksums.
May import: the port's errors. Comes in: `sources`, the fetching process and its parent.
"""
