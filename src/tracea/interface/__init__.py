"""The faces: functional ops, contexts over graphs, and PyTorch capture."""
