"""Conformance: every GPU primitive on lane-unique bits, the same text for the emulator and for hardware.

Each case is a kernel over the primitives with inputs and the exact outputs, computed by NumPy from the vendor's
tables: a driver that runs the case and compares bits, on whatever executes it, has tested those primitives there.
"""

from __future__ import annotations

from tracea.testing.conformance.case import ConformanceCase, Mismatch, compare, conformance_cases

__all__ = ["ConformanceCase", "Mismatch", "compare", "conformance_cases"]
