"""The proofs that every TileKernel passes before it is emitted."""
