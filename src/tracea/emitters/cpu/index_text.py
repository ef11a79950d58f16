"""Prints index expressions and predicates as C++ expressions over int64_t."""

from __future__ import annotations

from tracea.emitters.index_text import index_text, predicate_text

__all__ = ["index_text", "predicate_text"]
