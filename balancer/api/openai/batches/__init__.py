"""`/v1/files` and `/v1/batches`.

May import: `openai`'s own files, the other paths' rooms, whose lines batches run, `route`,
`endpoint`, `common`, `transport`, `fields`, `fleet`, `balancer.jobs`. Comes in: `api/app`.
"""
