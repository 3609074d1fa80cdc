"""`/v1/chat/completions` and `/v1/completions`: bodies to requests, events to answers.

May import: `openai`'s own files, `common`, `transport`, `openapi`, `fields`, `fleet`. Comes in:
`api/app`; `responses` reads formats and reasoning here.
"""
