"""Files, and batches of requests that survive whatever ends the balancer.

`batch`, `lines` and `schedule` decide; `blobs` hold the bytes. The `runner` runs batches: each
checks its input (`inputs`), runs its lines, saves each result at once, and puts the results
together (`results`).
"""
