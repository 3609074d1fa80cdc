"""Files, and batches of requests that continue after a restart of the balancer.

`batch`, `lines` and `schedule` are pure, and `blobs` stores bytes. The `runner` runs batches: it
checks each input (`inputs`), runs the lines, saves each result at once, and joins the results
(`results`).
"""
