"""Printers of proved tile kernels: one emitter per backend, one readable line per node, no decisions."""
