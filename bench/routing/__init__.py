"""Where requests go, and what that saves: the balancer's own core in virtual time, or real agents.

`workloads` say what clients ask, `host` what an agent computes, `simulation` puts both around the
core, `real` around the daemons.
"""
