"""The GPU suite: on a machine with an NVIDIA GPU, everything that only hardware can tell, in ten minutes.

Stages run one after another, each in a process of its own that is watched: a kernel that faults or hangs costs its own
item, not the run. Every item's outcome is in the record before the next one begins.
"""
