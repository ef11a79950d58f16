"""The semantic IR: TileKernel, its expressions and nodes, its interpreter and its proofs."""
