"""The face for PyTorch: capture of modules as graphs, and programs as modules."""
