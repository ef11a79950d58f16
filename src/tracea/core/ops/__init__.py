"""The ops, one family a module; ``tracea.core.op`` gathers them."""
