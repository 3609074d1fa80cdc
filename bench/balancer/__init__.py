"""What the balancer costs a token: `python -m bench.balancer`.

The balancer runs alone on one core. Simulated agents and the client are processes of their own on
the other cores: `agents` speak the agents' protocol and compute nothing, `client` counts and
times. Other balancers run against `backend`, an OpenAI-compatible server that computes nothing.
"""
