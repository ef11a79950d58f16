"""The variants: each file builds the TileKernel of one algorithm family from (op, schedule, target)."""
