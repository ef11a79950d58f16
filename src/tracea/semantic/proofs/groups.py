"""Groups: each part of the rows is multiplied with its own group's matrix, and the rows of no group are zero.

What the tables say is the caller's: the host checks it (:class:`tracea.semantic.tile_kernel.Table`), and the proofs
take that for granted. That the parts' tiles are all of the result, each once, is a matter of coverage, and that a sum
covers K once one of the reduction; what is left is which matrix and which bias a tile takes, and that its sums are
finished as the op says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracea.core.expr import Constant, Input
from tracea.core.ops.grouped_gemm import GroupedGemmOp
from tracea.semantic.group_tables import GroupTables
from tracea.semantic.index import Index, Lookup
from tracea.semantic.linear import Polynomial
from tracea.semantic.nodes import MicroKernel, PointwiseTile, Region
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.coverage import output_writes
from tracea.semantic.proofs.provenance import origin
from tracea.semantic.proofs.walk import Box, Site
from tracea.semantic.tile_kernel import Buffer, BufferRole, TileKernel

__all__ = ["is_group", "prove_groups"]


def is_group(kernel: TileKernel, buffer: str, offset: Polynomial) -> bool:
    """Return whether an offset is an entry of the table that says each part's group, in the groups' matrices."""
    tables = _tables(kernel)
    entry = _entry(offset)
    return tables is not None and entry is not None and entry.table == tables.number and buffer == _weights(kernel).name


def prove_groups(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove that every tile of a grouped product takes its own group's matrix and bias, and that all else is zero.

    Raises:
        ProofFailed: a tile's rows were not shown to be of the part whose group it takes, its epilogue is not the op's,
        or what is stored for rows of no group is not zero.
    """
    if not isinstance(kernel.op, GroupedGemmOp):
        return
    tables = _tables(kernel)
    if tables is None or kernel.tables != tables.tables:
        raise refuse("groups", kernel.name, "its tables are not those of parts of the result's rows and their groups")
    for write in output_writes(kernel, sites):
        site, node = write.site, write.site.node
        if isinstance(node, MicroKernel):
            yield _product(kernel, sites, site, node, tables)
        elif isinstance(node, PointwiseTile):
            yield _zero(site, node, tables)
        else:
            raise refuse("groups", site.label, "writes the result, and is neither a product nor zero")


def _product(kernel: TileKernel, sites: Sequence[Site], site: Site, node: MicroKernel, tables: GroupTables) -> Fact:
    weights = origin(kernel, sites, site, site.box(node.b))
    if weights is None or weights.box.buffer != _weights(kernel).name:
        raise refuse("groups", site.label, f"what {node.b.buffer} holds was not traced to the groups' matrices")
    entry = _entry(weights.box.offset[0])
    if entry is None or entry.table != tables.number or weights.box.extent[0].constant != 1:
        raise refuse("groups", site.label, f"the matrix at {weights.box.offset[0].to_index()} is of no part's group")
    target = node.epilogue.target if node.epilogue and node.epilogue.target else node.c
    result = site.box(target)
    _within(site, result, tables, entry.index)
    _finished(kernel, site, node)
    for operand in node.epilogue.operands if node.epilogue else ():
        if isinstance(operand, Region):
            _bias(site, site.box(operand), result, entry)
    return Fact("groups", site.label, f"rows of part {entry.index} take the matrix of group {entry}")


def _finished(kernel: TileKernel, site: Site, node: MicroKernel) -> None:
    """Show that a tile's epilogue is the op's expression of the sums and of its bias, if it has one."""
    op, call = kernel.op, node.epilogue
    assert isinstance(op, GroupedGemmOp)
    given = [buffer.name for buffer in kernel.buffers if buffer.role in (BufferRole.INPUT, BufferRole.CONSTANT)]
    read = (
        [operand.buffer if isinstance(operand, Region) else operand.name for operand in call.operands] if call else []
    )
    expr = call.expr if call else Input(0)
    if expr != op.expr or (read != given[2:] and expr != Input(0)):
        raise refuse("groups", site.label, f"stores {expr} of {read}, the op's is {op.expr} of {given[2:]}")


def _bias(site: Site, bias: Box, result: Box, entry: Lookup) -> None:
    """Show that an operand of the epilogue is the row of the part's group, at the tile's columns."""
    pairs = (("group", bias.offset[0], Polynomial.atom(entry)), ("column", bias.offset[-1], result.offset[-1]))
    for what, ours, theirs in pairs:
        if len(bias.offset) != 3 or not site.facts.proves_equal(ours, theirs):
            raise refuse("groups", site.label, f"{what} of {bias.buffer} is {ours.to_index()}, not {theirs.to_index()}")


def _zero(site: Site, node: PointwiseTile, tables: GroupTables) -> Fact:
    result = site.box(node.target)
    parts = {atom.index for atom in result.offset[0].atoms() if isinstance(atom, Lookup) and atom.table == tables.first}
    if node.expr != Constant(0.0) or len(parts) != 1:
        raise refuse("groups", site.label, f"stores {node.expr} for rows of {len(parts)} parts, must be zero for one")
    (part,) = parts
    _within(site, result, tables, part)
    none = site.canonical(tables.group(part)) - site.canonical(tables.groups)
    if not site.facts.proves(none):
        raise refuse("groups", site.label, f"part {part} was not shown to be of no group where it is made zero")
    return Fact("groups", site.label, f"rows of part {part} are zero where it is of no group")


def _within(site: Site, result: Box, tables: GroupTables, part: Index) -> None:
    """Show that a tile's rows are rows of a part."""
    begin, end = (site.canonical(tables.begin(at)) for at in (part, part + 1))
    row, rows = result.offset[-2], result.extent[-2]
    if not site.facts.proves(row - begin) or not site.facts.proves(end - row - rows):
        raise refuse("groups", site.label, f"rows {row.to_index()} and on were not shown to be of part {part}")


def _entry(offset: Polynomial) -> Lookup | None:
    """Return the table's entry that an offset is."""
    (atom,) = offset.atoms() if len(offset.atoms()) == 1 else (None,)
    return atom if isinstance(atom, Lookup) and offset == Polynomial.atom(atom) else None


def _weights(kernel: TileKernel) -> Buffer:
    """Return the groups' matrices: the second operand."""
    return [buffer for buffer in kernel.buffers if buffer.role in (BufferRole.INPUT, BufferRole.CONSTANT)][1]


def _tables(kernel: TileKernel) -> GroupTables | None:
    """Return the tables of a kernel of a grouped product as its buffers say them."""
    if not isinstance(kernel.op, GroupedGemmOp) or len(kernel.tables) != 2:
        return None
    result = next(buffer for buffer in kernel.buffers if buffer.role is BufferRole.OUTPUT)
    parts = kernel.tables[1].length
    return GroupTables(parts=parts, rows=result.shape[0], groups=_weights(kernel).shape[0])
