"""The centre of the fleet: holds requests until a slot is free, and forwards the streams."""

if __name__ != "arriero.balancer":
    raise ImportError(f"import this package as arriero.balancer, not as {__name__}")
