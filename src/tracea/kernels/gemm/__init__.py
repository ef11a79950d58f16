"""GEMM variants: packed blocked, small without packing, skinny and GEMV, weights packed ahead of time."""
