"""Attention: each block of queries takes every key that its queries see, once, with its value and its position.

The scores of a block are right where the node's positions are those of the rows that it reads, and its function, scale
and mask those of the op. All keys are taken where the loop over keys sweeps an interval that no visible key lies
outside of. The state is begun before the loop and finished after it, in the same place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tracea.core.expr import Input
from tracea.core.ops.attention import AttentionOp
from tracea.semantic.index import Index, Var, as_index, ceil_div
from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.nodes import Pack, PointwiseTile, Region
from tracea.semantic.nodes_attention import (
    AttentionCombine,
    AttentionFinish,
    AttentionStart,
    AttentionState,
    AttentionStep,
)
from tracea.semantic.nodes_attention_gradient import KeyBlock
from tracea.semantic.proofs.attention_spans import every_span
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.tiling import chain, stride_of
from tracea.semantic.proofs.walk import Box, Loop, Site
from tracea.semantic.tile_kernel import BufferRole, TileKernel

__all__ = ["check_numbers", "every_key", "operands_aligned", "prove_attention", "room_for_terms", "rows_of"]

_ONE = Polynomial.of(1)


def prove_attention(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove that every step of attention takes its share of the keys that its queries see.

    Raises:
        ProofFailed: positions, operands or numbers are not those of the op, a visible key may be left out or taken
        twice, or the state is not begun before and finished after all keys.
    """
    if any(isinstance(site.node, KeyBlock) for site in sites):
        return  # of gradients, which have a proof of their own
    for site in sites:
        if isinstance(site.node, AttentionStep):
            _numbers(kernel, site, site.node)
            if (site.node.count is None) is not (site.node.weights is None):
                raise refuse("attention", site.label, "panels of terms need their count and room for weights, both")
            end = _one_state(sites, site, site.node)
            result = _result_of(kernel, site, site.node, end)
            queries = rows_of(kernel, sites, site, site.node.queries)
            keys = rows_of(kernel, sites, site, site.node.keys)
            values = rows_of(kernel, sites, site, site.node.values, axis=0 if site.node.count is None else 1)
            _aligned(kernel, site, site.node, queries=queries, keys=keys, values=values, result=result)
            if site.node.span is None:
                yield every_key(kernel, site, site.node, keys, end)
            else:
                yield every_span(kernel, site, site.node, site.node.span, keys=keys, result=result)
        elif isinstance(site.node, AttentionStart | AttentionFinish | AttentionCombine) and not any(
            isinstance(other.node, AttentionStep) and _same_place(other.node.state, site.node.state) for other in sites
        ):
            raise refuse("attention", site.label, "no step takes keys into this state")


def _numbers(kernel: TileKernel, site: Site, node: AttentionStep) -> None:
    op = kernel.op
    if not isinstance(op, AttentionOp):
        raise refuse("attention", site.label, f"the kernel's op is {type(op).__name__}, no attention")
    check_numbers(site, node, op)
    rows = (node.span and node.span.tables.rows, op.spans and op.spans.rows)
    if rows[0] != rows[1]:
        raise refuse("attention", site.label, f"rows of spans is {rows[0]}, the op's is {rows[1]}")


def check_numbers(site: Site, node: AttentionStep | KeyBlock, op: AttentionOp) -> None:
    """Show that scale, mask and score are an attention's.

    Raises:
        ProofFailed: they are not.
    """
    for what, ours, theirs in (
        ("scale", node.scale, op.softmax_scale),
        ("causal", node.causal, op.causal),
        ("window", node.window, op.window),
        ("score", node.score, op.score.expr),
        ("operands of the score", len(node.operands), len(op.score.operands)),
    ):
        if ours != theirs:
            raise refuse("attention", site.label, f"{what} is {ours}, the op's is {theirs}")


def _same_place(state: AttentionState, other: AttentionState) -> bool:
    return [region.buffer for region in state.regions] == [region.buffer for region in other.regions]


def _one_state(sites: Sequence[Site], step: Site, node: AttentionStep) -> Site:
    """Show that the state is begun once before the loop over keys and finished once after it; return what does."""
    names = {region.buffer for region in node.state.regions}
    users = [s for s in sites if any(a.region.buffer in names for a in s.node.accesses())]
    starts = [s for s in users if isinstance(s.node, AttentionStart) and s.node.state == node.state]
    ends = [s for s in users if isinstance(s.node, AttentionFinish | AttentionCombine)]
    if len(starts) != 1 or len(ends) != 1 or len(users) != 3 or len(names) != 3:
        raise refuse("attention", step.label, f"{len(starts)} starts, {len(ends)} ends, {len(users)} users of a state")
    (start,), (end,) = starts, ends
    if start.loops != _around(step, node) or start.guards or end.guards or step.guards:
        raise refuse("attention", step.label, "the state is not begun around one loop over keys")
    if not start.place < step.place < end.place:
        raise refuse("attention", step.label, "the state is begun after its first key or finished before its last")
    assert isinstance(start.node, AttentionStart)
    if step.canonical(start.node.rows) != step.canonical(node.rows):
        raise refuse("attention", step.label, f"{node.rows} rows, of which {start.node.rows} were begun")
    return end


def _around(step: Site, node: AttentionStep) -> tuple[Loop, ...]:
    """Return the loops around those over keys."""
    return step.loops[: -1 if node.span is None else -2]


def _result_of(kernel: TileKernel, step: Site, node: AttentionStep, end: Site) -> Box:
    """Return where the result of a step's queries goes, over the step's own loops."""
    if isinstance(end.node, AttentionFinish):
        if end.loops != _around(step, node) or end.node.state != node.state:
            raise refuse("attention", step.label, "the state is not finished around one loop over keys")
        return end.box(end.node.target)
    assert isinstance(end.node, AttentionCombine)
    ours, theirs, target = step.box(node.state.peaks), end.box(end.node.state.peaks), end.box(end.node.target)
    heads, zero = len(target.offset) - 2, Polynomial({})
    agreed = [
        *zip(theirs.offset[:heads], target.offset[:heads], strict=True),
        *((offset, zero) for offset in (*theirs.offset[heads:], *ours.offset[heads + 1 :], *target.offset[heads:])),
        *zip(theirs.extent[heads:], map(end.canonical, kernel.buffer(theirs.buffer).shape[heads:]), strict=True),
    ]
    for region in (end.node.state.totals, end.node.state.sums):
        box, sizes = end.box(region), map(end.canonical, kernel.buffer(region.buffer).shape[heads:])
        agreed += zip(box.offset[:heads], theirs.offset[:heads], strict=True)
        agreed += zip(box.extent[:heads], theirs.extent[:heads], strict=True)
        agreed += [(offset, zero) for offset in box.offset[heads:]]
        agreed += zip(box.extent[heads:], sizes, strict=True)
    for region in (node.state.totals, node.state.sums):
        agreed += zip(step.box(region).offset[: heads + 1], ours.offset[: heads + 1], strict=True)
    if any(left != right for left, right in agreed):
        raise refuse("attention", end.label, f"{end.node.state.peaks} are not the parts of the head {end.node.target}")
    return Box(target.buffer, (*ours.offset[:heads], *target.offset[heads:]), target.extent)


def rows_of(kernel: TileKernel, sites: Sequence[Site], step: Site, region: Region, *, axis: int = 0) -> Box:
    """Return the rows of an operand that a region holds: its own, or those that were copied there.

    ``axis`` is the one that panels cut, where it is in panels: of rows, or of their elements.

    Raises:
        ProofFailed: they were not found.
    """
    if kernel.buffer(region.buffer).role is not BufferRole.SCRATCH:
        return step.box(region)
    writers = [s for s in sites if any(a.region.buffer == region.buffer and a.writes for a in s.node.accesses())]
    if len(writers) != 1 or writers[0].place > step.place or writers[0].guards:
        raise refuse("attention", step.label, f"what {region.buffer} holds was not traced to an operand")
    writer, node = writers[0], writers[0].node
    if writer.loops != step.loops[: len(writer.loops)]:
        raise refuse("attention", step.label, f"{region.buffer} is written in a loop of its own")
    if isinstance(node, Pack):
        packed = node.axis == axis and (node.terms, node.granule) == _granules_of(step)
        whole = packed and step.box(region) == writer.box(node.target)
        if whole and node.panel * node.terms == normalize(kernel.buffer(region.buffer).shape[-1]).constant:
            return writer.box(node.source)
    elif isinstance(node, PointwiseTile) and node.expr == Input(0) and len(node.inputs) == 1:
        source = node.inputs[0]
        if isinstance(source, Region) and step.box(region) == writer.box(node.target):
            return writer.box(source)
    raise refuse("attention", step.label, f"{region.buffer} is not a copy of rows of an operand")


def _granules_of(step: Site) -> tuple[int, int]:
    """Return the terms of an element and the steps of a granule that a step reads panels with."""
    node = step.node
    if not isinstance(node, AttentionStep | KeyBlock) or node.count is None:
        return 1, 1
    said = dict(node.intrinsic.attributes)
    return int(said["terms"]), int(said["tile"])


def room_for_terms(
    kernel: TileKernel,
    site: Site,
    node: AttentionStep | KeyBlock,
    keys: Polynomial,
    granules: Mapping[str, tuple[Index | int, Region]],
) -> list[tuple[str, Polynomial, Polynomial]]:
    """Return what has to be equal so that what is made of so many keys has room: names and both sides.

    ``granules`` are weights and the like by their names: of how many panels, and where.
    """
    scores = site.box(node.scores).extent
    if node.count is None:
        return [("keys and scores", keys, scores[-2])]
    terms, granule = _granules_of(site)
    blocks = ceil_div(keys.to_index(), granule)
    line = normalize(kernel.buffer(node.scores.buffer).shape[-1] * terms)
    pairs = [
        ("keys and their count", keys, site.canonical(node.count)),
        ("panels and scores", Polynomial.of(2), scores[-3]),
        ("keys and scores", normalize(blocks * granule), scores[-2]),
    ]
    for name, (panels, region) in granules.items():
        wanted = (site.canonical(as_index(panels)), normalize(blocks), Polynomial.of(granule), line)
        pairs += [(f"keys and {name}", *both) for both in zip(site.box(region).extent, wanted, strict=True)]
    return pairs


def _aligned(
    kernel: TileKernel, site: Site, node: AttentionStep, *, queries: Box, keys: Box, values: Box, result: Box
) -> None:
    """Show that positions, heads and extents agree between the queries, the keys, their values and the result."""
    rows = site.canonical(node.rows)
    depth = site.canonical(kernel.buffer(queries.buffer).shape[-1])
    width = site.canonical(kernel.buffer(result.buffer).shape[-1])
    zero = Polynomial({})
    pairs = [
        ("position of the first query", site.canonical(node.first_query), queries.offset[-2]),
        ("position of the first key", site.canonical(node.first_key), keys.offset[-2]),
        ("first query and first result", queries.offset[-2], result.offset[-2]),
        ("queries", rows, queries.extent[-2]),
        ("results", rows, result.extent[-2]),
        ("first key and first value", keys.offset[-2], values.offset[-2]),
        ("keys and values", keys.extent[-2], values.extent[-2]),
        *room_for_terms(kernel, site, node, keys.extent[-2], {"weights": (2, node.weights)} if node.weights else {}),
        ("depth of queries", queries.extent[-1], depth),
        ("depth of keys", keys.extent[-1], depth),
        ("width of values", values.extent[-1], width),
        ("width of results", result.extent[-1], width),
        ("width of sums", site.box(node.state.sums).extent[-2], width),
        *(("first element of a row", box.offset[-1], zero) for box in (queries, keys, values, result)),
    ]
    heads = (("queries", queries), ("keys", keys), ("values", values))
    read = [box.buffer for _, box in heads]
    given = [buffer.name for buffer in kernel.buffers if buffer.role is BufferRole.INPUT]
    if read != given[: len(read)]:
        raise refuse("attention", site.label, f"queries, keys and values are {read}, the op's {given[: len(read)]}")
    for what, box in heads:  # (batch, key head, …): keys have no axis for the heads that share them
        theirs = box.offset[:-2]
        pairs += [
            (f"head of {what}", ours, other) for ours, other in zip(result.offset[: len(theirs)], theirs, strict=True)
        ]
    panel, terms = kernel.buffer(node.scores.buffer).shape[-1], _granules_of(site)[0]
    widths = {kernel.buffer(part.buffer).shape[-1] for part in (node.scores, *node.state.regions)}
    if widths != {panel} or normalize(kernel.buffer(node.queries.buffer).shape[-1]) != normalize(panel * terms):
        raise refuse("attention", site.label, f"panels of {sorted(map(str, widths))} queries")
    pairs += operands_aligned(kernel, site, node, result.offset[:-2], queries=queries, keys=keys)
    for what, left, right in pairs:
        if not site.facts.proves_equal(left, right):
            raise refuse("attention", site.label, f"{what}: {left.to_index()} and {right.to_index()}")


def operands_aligned(
    kernel: TileKernel,
    site: Site,
    node: AttentionStep | KeyBlock,
    head: tuple[Polynomial, ...],
    *,
    queries: Box,
    keys: Box,
) -> list[tuple[str, Polynomial, Polynomial]]:
    """Return what has to be equal so that a score's operands are those of a block's pairs: names and both sides.

    Raises:
        ProofFailed: they are not the last buffers that the kernel is given, in their order.
    """
    given = [buffer.name for buffer in kernel.buffers if buffer.role is BufferRole.INPUT]
    read, named = [region.buffer for region in node.operands], given[len(given) - len(node.operands) :]
    if read != named:
        raise refuse("attention", site.label, f"the score's operands are {read}, the op's {named}")
    pairs: list[tuple[str, Polynomial, Polynomial]] = []
    wanted = (*head, queries.offset[-2], keys.offset[-2])
    extents = (*(_ONE for _ in head), site.canonical(node.rows), keys.extent[-2])
    for region in node.operands:
        box = site.box(region)
        for axis, size in enumerate(kernel.buffer(region.buffer).shape):
            if normalize(size) != _ONE:
                pairs.append((f"axis {axis} of {region.buffer}", box.offset[axis], wanted[axis]))
                pairs.append((f"extent {axis} of {region.buffer}", box.extent[axis], extents[axis]))
    return pairs


def every_key(
    kernel: TileKernel, site: Site, node: AttentionStep | KeyBlock, keys: Box, end: Site | None = None
) -> Fact:
    """Show that the loop over keys sweeps an interval once, outside of which no query of the block sees a key.

    Of keys in parts, which ``end`` brings together, those of a part, and that the parts are all there.

    Raises:
        ProofFailed: a visible key may be left out or taken twice.
    """
    loop = site.loops[-1]
    offset, extent = keys.offset[-2], keys.extent[-2]
    begin = offset - stride_of(offset, loop) * loop.atom
    facts, size = loop.outside, loop.extent
    if loop.kind.is_parallel or loop.var in begin.atoms():
        raise refuse("attention", site.label, f"keys are not taken by one sequential loop: {offset.to_index()}")
    if chain(offset - begin, extent, size, (loop,), site.unguarded) is None:
        raise refuse(
            "attention",
            site.label,
            f"[{offset.to_index()} : +{extent.to_index()}] was not shown to sweep {size.to_index()} keys once",
        )
    key, query = Polynomial.atom(Var("key")), Polynomial.atom(Var("query"))
    first, rows = site.canonical(node.first_query), site.canonical(node.rows)
    total = site.canonical(kernel.buffer(keys.buffer).shape[-2])
    seen = [key, total - key - 1, query - first, first + rows - 1 - query]
    if node.causal:
        seen.append(query - key)
    if node.window is not None:
        seen += [key - query + (node.window - 1), query - key + (node.window - 1)]
    if end is not None and isinstance(end.node, AttentionCombine):
        assert isinstance(node, AttentionStep)
        seen += _own_part(kernel, site, node, end.node, total, begin, begin + size)
    visible = facts.plus(seen)
    for what, goal in (("before the first", key - begin), ("after the last", begin + size - 1 - key)):
        if not visible.proves(goal):
            raise refuse("attention", site.label, f"a visible key may lie {what} of [{_shown(begin, size)})")
    return Fact("attention", site.label, f"every visible key of {keys.buffer} is taken once over {loop.var}")


def _own_part(
    kernel: TileKernel,
    site: Site,
    node: AttentionStep,
    end: AttentionCombine,
    total: Polynomial,
    *interval: Polynomial,
) -> list[Polynomial]:
    """Return that a key is of the step's part, having shown that the interval is and that each part has its loop."""
    axis = kernel.buffer(node.state.peaks.buffer).rank - 3
    which = site.box(node.state.peaks).offset[axis]
    loop = next((loop for loop in site.loops if loop.atom == which), None)
    parts = normalize(ceil_div(total.to_index(), end.part))
    if (
        loop is None
        or loop.count != parts
        or site.canonical(kernel.buffer(node.state.peaks.buffer).shape[axis]) != parts
    ):
        raise refuse(
            "attention", site.label, f"part {which.to_index()} is not one of {parts.to_index()} in a loop of its own"
        )
    first, key = which * end.part, Polynomial.atom(Var("key"))
    outside = site.loops[-1].outside
    begin, after = interval
    # An empty interval may lie anywhere.
    within = outside.plus([after - begin - 1])
    if not (within.proves(begin - first) and within.proves(first + end.part - after)):
        raise refuse("attention", site.label, f"[{_shown(begin, after - begin)}) is not within part {which.to_index()}")
    return [key - first, first + (end.part - 1) - key]


def _shown(begin: Polynomial, size: Polynomial) -> str:
    first: Index = begin.to_index()
    return f"{first}, {(begin + size).to_index()}"
