"""The scheduler, which plans each step: admission, prefill chunks, preemption, recovery."""
