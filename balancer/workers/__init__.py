"""Several processes of one balancer on a host share both ports; a parent keeps them running."""
