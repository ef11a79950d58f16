"""Run emitted CUDA kernels: bind their arguments, encode tensor maps, launch through the driver or through none."""
