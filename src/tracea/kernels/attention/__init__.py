"""Attention variants."""
