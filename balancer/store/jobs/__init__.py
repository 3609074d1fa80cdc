"""What survives a restart of files and batches: their rows, and the chunks that batches run in.

May import: `balancer.store`. Comes in: the daemon, and `balancer.jobs`.
"""
