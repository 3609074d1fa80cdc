"""Where requests go, and what that saves: the balancer's own core in virtual time.

`workloads` say what clients ask, `host` what an agent computes, `simulation` puts both around the
core.
"""
