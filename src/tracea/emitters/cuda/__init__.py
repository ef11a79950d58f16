"""CUDA: the device headers and the printer of kernels for NVIDIA GPUs."""
