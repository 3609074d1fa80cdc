"""The client-facing APIs: each translates its own format to the neutral request and back.

Each API has a folder (`native`, `openai`, `anthropic` and others). `common` has what APIs share,
`endpoint` the frame around all calls, and `route` what a route declares. `transport` is HTTP
itself, and `openapi` describes the routes.
"""
