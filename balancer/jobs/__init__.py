"""Files, and batches of requests that survive whatever ends the balancer.

`core` decides; `blobs` hold the bytes; the files here check an input, run its lines, keep each
result at once (`spool`), put results together, and delete what nothing refers to (`orphans`).
"""
