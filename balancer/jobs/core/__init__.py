"""What batches decide: their states, what runs next, what the end of a line means. All of it pure.

May import: nothing but `shared`. Comes in: `balancer.jobs`, and the API that shows batches.
"""
