"""`/v1/chat/completions` and `/v1/completions`: bodies to requests, events to answers.

May import: `openai`'s own files, `route`, `endpoint`, `common`, `transport`, `fields`, `fleet`.
Comes in: `api/app`; `responses` reads formats and reasoning here.
"""
