"""GEMM on GPUs: builders that share tiles, copies, products on fragments and the epilogue."""
