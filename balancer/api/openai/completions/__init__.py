"""`/v1/chat/completions` and `/v1/completions`: bodies to requests, events to answers."""
