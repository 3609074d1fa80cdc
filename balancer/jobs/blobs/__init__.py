"""Where files' bytes lie: a folder, or storage that fsspec reaches, such as S3.

May import: nothing but `shared`. Comes in: `balancer.jobs`.
"""
