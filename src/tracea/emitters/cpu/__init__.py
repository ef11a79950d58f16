"""The C++ emitter for CPUs, and the device headers that its text calls."""
