"""Sizes: every integer fits the width it is computed in, and every scratch buffer has a size that can be allocated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, permutations

from tracea.semantic.fields import expressions, subexpressions
from tracea.semantic.index import INT32_MAX, INT64_MAX, Const, Index, Var
from tracea.semantic.linear import normalize
from tracea.semantic.nodes import CopyTile, For, Let, MicroKernel, Node, Parallel
from tracea.semantic.nodes_async import Gather
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.interval import Ranges
from tracea.semantic.proofs.walk import Site
from tracea.semantic.proofs.windows import is_window
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel, bound_names

__all__ = ["past_the_end", "prove_scratch", "prove_widths", "span_guards"]


def prove_widths(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove that all index values, and everything inside them, fit their width for the largest arguments.

    Addresses follow from the bounds: a coordinate in bounds times its stride is within the buffer's span, which the
    launcher checks.

    Raises:
        ProofFailed: a value was not shown to fit.
    """
    count = 0
    for site in sites:
        ranges = Ranges(kernel, site)
        node = site.node
        bound = set(bound_names(node)) if not isinstance(node, Gather) else frozenset[str]()
        bits = node.bits if isinstance(node, Let | Gather) else 64
        limit = INT32_MAX if bits == 32 else INT64_MAX
        if isinstance(node, Gather):
            ranges = ranges.with_points(node, site)
        for expression in (*expressions(node), *past_the_end(node)):
            for part in subexpressions(expression):
                if isinstance(part, Var) and part.name in bound:
                    continue
                count += 1
                reach = ranges.of_expression(part, within=limit)
                if reach is None or reach.low < -limit - 1 or reach.high > limit:
                    spans = "no bound" if reach is None else f"{reach.low} .. {reach.high}"
                    raise refuse("width", site.label, f"{part} has {spans}, which does not fit {bits} bits")
    yield Fact("width", kernel.name, f"{count} expressions fit their width for all arguments within their ranges")


def past_the_end(node: Node) -> tuple[Index, ...]:
    """Return what a loop in steps counts up to, where it ends, and what the number of its tasks is a quotient of."""
    return (node.extent + (node.step - 1),) if isinstance(node, For | Parallel) and node.step != Const(1) else ()


def prove_scratch(
    kernel: TileKernel, sites: Sequence[Site], limits_bytes: Mapping[MemorySpace, int] | None = None
) -> Iterator[Fact]:
    """Prove that scratch sizes are not negative, fit int64, and stay within the given limits.

    Raises:
        ProofFailed: a size may be negative, too large for int64, or above the limit, or axes may overlap.
    """
    root = sites[0]
    ranges = Ranges(kernel, root)
    for buffer in kernel.buffers:
        if buffer.role is not BufferRole.SCRATCH:
            continue
        for axis, size in enumerate(buffer.shape):
            if not root.facts.proves(normalize(size)):
                raise refuse("scratch", buffer.name, f"axis {axis}: size {size} was not shown to be at least 0")
        if buffer.strides is not None and (taken := _taken_row_major(sites, buffer)):
            raise refuse("scratch", buffer.name, f"has strides, {taken} takes it to be row-major")
        if not _has_a_place_each(root, buffer):
            raise refuse("scratch", buffer.name, f"strides {_listed(buffer.strides)} were not shown to part its axes")
        reach = ranges.of_expression(buffer.nbytes, within=INT64_MAX)
        fits = reach is not None and reach.high <= INT64_MAX
        if not fits and not root.facts.proves(-normalize(buffer.nbytes) + INT64_MAX):
            raise refuse("scratch", buffer.name, f"{buffer.nbytes} bytes do not fit int64")
        yield Fact("scratch", buffer.name, f"{buffer.nbytes} bytes of {buffer.space.value} memory")
    for space, limit in (limits_bytes or {}).items():
        needed = kernel.team_scratch_bytes if space is MemorySpace.TEAM else kernel.thread_scratch_bytes
        reach = ranges.of_expression(needed)
        if reach is None or reach.high > limit:
            most = "unbounded" if reach is None else reach.high
            raise refuse("scratch", space.value, f"{needed} bytes (at most {most}) exceed the limit of {limit} bytes")


def _taken_row_major(sites: Sequence[Site], buffer: Buffer) -> str | None:
    """Return the first node that a scratch buffer with strides is none for: all but copies to it and windows of it."""
    for site in sites:
        node = site.node
        for access in node.accesses():
            if access.region.buffer != buffer.name:
                continue
            copied = isinstance(node, CopyTile) and access.writes
            window = isinstance(node, MicroKernel) and is_window(node) and access.region == node.a
            if not copied and not window:
                return site.label
    return None


def _has_a_place_each(root: Site, buffer: Buffer) -> bool:
    """Return whether elements lie apart: in some order of the axes each stride steps over all of the axis before."""
    if buffer.strides is None:
        return True
    facts = root.facts
    axes = [
        (normalize(stride), normalize(size), normalize(size * stride))
        for size, stride in zip(buffer.shape, buffer.strides, strict=True)
    ]
    if any(not facts.proves(size - 1) for _, size, _ in axes):
        return False  # the strides of an axis without elements say nothing of the room that the others take
    return any(
        facts.proves(order[0][0] - 1) and all(facts.proves(outer[0] - inner[2]) for inner, outer in pairwise(order))
        for order in permutations(axes)
    )


def _listed(strides: Sequence[Index] | None) -> str:
    return ", ".join(map(str, strides or ()))


def span_guards(kernel: TileKernel) -> tuple[str, ...]:
    """Return what the launcher checks of arrays: spans in bytes are int64, an output does not overlap itself."""
    guards: list[str] = []
    for buffer in kernel.buffers_in(MemorySpace.GLOBAL):
        reach = " + ".join(
            f"({size} - 1) * |{stride}|" for size, stride in zip(buffer.shape, buffer.element_strides, strict=True)
        )
        guards.append(f"{buffer.name}: ({reach or '0'} + 1) * {buffer.dtype.nbytes} <= {INT64_MAX}")
        if buffer.role is BufferRole.OUTPUT and buffer.strides is not None:
            guards.append(f"{buffer.name}: different elements have different addresses")
    return tuple(guards)
