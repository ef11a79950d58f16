"""Routines: what a routine says of itself can be so, operands lie as it says, and its arithmetic holds them.

Panels of several steps a granule, or of several terms an element, have another order than plain ones: who reads a panel
has to say the numbers that it was packed with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tracea.core.dtype import DType
from tracea.semantic.access import Attribute, Intrinsic, Region
from tracea.semantic.index import Const
from tracea.semantic.intrinsics import terms_of
from tracea.semantic.nodes import CopyTile, MicroKernel, Node, Pack
from tracea.semantic.nodes_attention import AttentionStep
from tracea.semantic.nodes_attention_gradient import AttentionGradient, AttentionPeaks
from tracea.semantic.nodes_halo import Halo
from tracea.semantic.nodes_sparse import RunProduct
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.provenance import reaching
from tracea.semantic.proofs.walk import Site
from tracea.semantic.tile_kernel import BufferRole, TileKernel

__all__ = ["prove_routines"]

_TILE: Final = ("mr", "nv", "nr", "unroll")
_WINDOW: Final = ("stride_rows", "stride_columns", "dilation_rows", "dilation_columns")
# The numbers from 1 on that a routine's code is made of, by its name.
_NUMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "gemm_tile": _TILE,
    "step_tile": _TILE,
    "gemv_columns": ("rows", "steps"),
    "dot_tile": ("rows", "columns"),
    "amx_block": ("terms", "tile"),
    "amx_rows": ("terms", "tile"),
    "conv_tile": (*_TILE, *_WINDOW),
    "conv_dot": ("mr", "nk", *_WINDOW),
    "depthwise_tile": ("mr", "nv", "nr", *_WINDOW),
    "pixel_tile": ("nr", "nv", *_WINDOW),
    "place_tile": _TILE,
    "amx_conv": ("terms", "tile", "lanes", "spare_rows", *_WINDOW),
    "attention_tile": ("mr", "nv", "unroll"),
    "attention_amx": ("terms", "tile", "operand_terms"),
    "attention_gradient": ("mr", "nv", "unroll"),
    "attention_gradient_amx": ("terms", "tile", "operand_terms"),
}
# What else a routine has to say: of ``tail`` any number, of the others one of these words.
_WORDS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "gemm_tile": {"a": ("panel", "rows", "columns"), "b": ("panel", "rows")},
}
_TAILED: Final = frozenset({"attention_tile", "attention_gradient"})


def prove_routines(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove that each routine has its numbers, reads what was packed for it, and computes in a type that holds all.

    Raises:
        ProofFailed: a number is missing or below 1, an operand lies otherwise or was packed otherwise, or a result
        would be rounded to less than an operand has.
    """
    checked = 0
    for site in sites:
        intrinsic = getattr(site.node, "intrinsic", None)
        if not isinstance(intrinsic, Intrinsic):
            continue
        said = dict(intrinsic.attributes)
        _says_enough(site, intrinsic, said)
        if isinstance(site.node, MicroKernel | RunProduct):
            for name, region in (("a", site.node.a), ("b", site.node.b)):
                _lies_as_packed(kernel, sites, site, name, region)
        for name, region, turned in _factors(site.node):
            _lies_turned(kernel, sites, site, name, region, turned=turned)
        _holds_operands(kernel, site, said)
        checked += 1
    yield Fact("routines", kernel.name, f"{checked} routines have their numbers, and read what was packed for them")


def _says_enough(site: Site, intrinsic: Intrinsic, said: Mapping[str, Attribute]) -> None:
    for name in _NUMBERS.get(intrinsic.name, ()):
        value = said.get(name)
        if not isinstance(value, int) or value < 1:
            raise refuse("routines", site.label, f"{intrinsic.name} says {name}={value}, which is no number from 1 on")
    for name, words in _WORDS.get(intrinsic.name, {}).items():
        if said.get(name) not in words:
            raise refuse("routines", site.label, f"{intrinsic.name} says {name}={said.get(name)}, not one of {words}")
    if intrinsic.name in _TAILED and not isinstance(said.get("tail"), int):
        raise refuse("routines", site.label, f"{intrinsic.name} does not say its tail")


def _lies_as_packed(kernel: TileKernel, sites: Sequence[Site], site: Site, name: str, region: Region) -> None:
    """Show that an operand that was packed is read as it was packed, and nothing else as if it were."""
    node = site.node
    assert isinstance(node, MicroKernel | RunProduct)
    said, writer = dict(node.intrinsic.attributes), reaching(kernel, sites, site, region.buffer)
    if writer is not None and isinstance(writer.node, Halo):
        dtype = _image_type(kernel, sites, writer, writer.node)
        _reads_enough(site, name, min(int(said["terms"]), writer.node.terms), terms_of(dtype), dtype)
    pack = writer.node if writer is not None and isinstance(writer.node, Pack) else None
    in_panels = pack is not None or kernel.buffer(region.buffer).role is BufferRole.CONSTANT
    if node.intrinsic.name == "gemm_tile" and (said[name] == "panel") != in_panels:
        how = "in panels" if in_panels else "where it is"
        raise refuse("routines", site.label, f"{region.buffer} lies {how}, the routine reads {name} as {said[name]}")
    if pack is not None:
        if pack.turned:
            raise refuse("routines", site.label, f"{region.buffer} was packed as the other factor than {name}")
        granule = int(said["lanes"]) if "lanes" in said else node.granule
        read = (granule, int(said.get("terms", 1)), int(said.get("marks", 0)))
        packed = (pack.granule, pack.terms, pack.marks)
        if read != packed:
            text = f"steps of a granule, terms and marks of {region.buffer}: {packed} were packed, {read} are read"
            raise refuse("routines", site.label, text)
    if in_panels and "marks" in said:
        operand = kernel.op.operands["ab".index(name)] if pack is None else kernel.buffer(pack.source.buffer)
        needed = terms_of(operand.dtype)
        _reads_enough(site, name, int(said["terms"]), needed, operand.dtype)
        width = int(said["tile"]) * int(said["terms"]) + int(said["marks"])
        step = kernel.buffer(region.buffer).shape[-1]
        if step != Const(width):
            raise refuse("routines", site.label, f"a step of {region.buffer} is {step} words, {width} are read")


def _image_type(kernel: TileKernel, sites: Sequence[Site], site: Site, halo: Halo) -> DType:
    """Return the type of the image that a halo is of, before it was copied into one of another type."""
    copy = reaching(kernel, sites, site, halo.source.buffer)
    image = copy.node.source if copy is not None and isinstance(copy.node, CopyTile) else halo.source
    return kernel.buffer(image.buffer).dtype


def _factors(node: Node) -> tuple[tuple[str, Region, bool], ...]:
    """Return what products of attention on matrix tiles are of, and whether it is packed as the other factor.

    Scores are keys by queries, sums columns of values by queries: queries and weights are second factors, of rows that
    are turned. So are the gradients' slopes, but for the sums over queries, which have them as first factors.
    """
    match node:
        case AttentionStep() if node.weights is not None:
            return ("queries", node.queries, True), ("keys", node.keys, False), ("values", node.values, True)
        case AttentionPeaks() if node.count is not None:
            return ("queries", node.queries, True), ("keys", node.keys, False)
        case AttentionGradient() if node.terms is not None:
            return (
                *(("queries", node.queries, True), ("gradients", node.grads, True)),
                *(("keys", node.keys, False), ("values", node.values, False)),
                *(("columns of queries", node.query_rows, False), ("columns of gradients", node.grad_rows, False)),
                ("columns of keys", node.terms.key_columns, True),
            )
        case _:
            return ()


def _lies_turned(
    kernel: TileKernel, sites: Sequence[Site], site: Site, name: str, region: Region, *, turned: bool
) -> None:
    """Show that what a product of attention reads as its first or second factor was packed as that one."""
    writer = reaching(kernel, sites, site, region.buffer)
    if writer is None or not isinstance(writer.node, Pack) or writer.node.turned is not turned:
        raise refuse("routines", site.label, f"{name} were not packed as the factor that {region} is read as")
    source = kernel.buffer(writer.node.source.buffer)
    _reads_enough(site, name, _operand_terms(site), writer.node.terms, source.dtype)


def _reads_enough(site: Site, name: str, read: int, of: int, dtype: DType) -> None:
    """Show that as many terms are read as hold an operand's type."""
    if read < min(of, terms_of(dtype)):
        raise refuse("routines", site.label, f"{name}: {read} of the {of} terms of {dtype.value} are read")


def _operand_terms(site: Site) -> int:
    """Return how many terms of what was packed a routine on matrix tiles reads: those that hold the operands' type."""
    assert isinstance(site.node, AttentionStep | AttentionPeaks | AttentionGradient)
    return int(site.node.intrinsic.attribute("operand_terms"))


def _holds_operands(kernel: TileKernel, site: Site, said: Mapping[str, Attribute]) -> None:
    if said.get("compute", DType.F64.value) == DType.F64.value:
        return
    for access in site.node.accesses():
        buffer = access.region.buffer
        if kernel.buffer(buffer).dtype is DType.F64:
            raise refuse("routines", site.label, f"{buffer} is f64, the routine computes in {said['compute']}")
