"""The core of the balancer: decides which agent runs each request, and what each client receives.

Every module is pure except those in `runtime`. `core` combines `requests`, which take slots, and
`queries`, which are embeddings, rankings and token queries. The files in this folder contain what
requests and queries share, such as agents (`registry`), models, deadlines, limits and views.
"""
