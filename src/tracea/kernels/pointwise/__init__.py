"""Pointwise variants: one pass over a chain of elementwise operations."""
