"""Files, and batches of requests that survive the end of the balancer.

`batch`, `lines` and `schedule` are pure; `blobs` store the bytes. The `runner` runs batches: it
checks the input of each (`inputs`), runs its lines, saves each result at once, and joins the
results (`results`).
"""
