"""Compile, load and run kernels: toolchain, content-addressed cache, launcher, Program.

Importing this package loads no compiler and no native code; the first call does.
"""
