"""The one door to the proofs: a kernel's certificate, or the first proof that fails."""

from __future__ import annotations

from collections.abc import Mapping

from tracea.semantic.proofs.attention import prove_attention
from tracea.semantic.proofs.attention_gradient import prove_attention_gradient
from tracea.semantic.proofs.banks import prove_banks
from tracea.semantic.proofs.bounds import prove_bounds
from tracea.semantic.proofs.certificate import Certificate, Fact, refuse
from tracea.semantic.proofs.coverage import prove_coverage
from tracea.semantic.proofs.divisions import prove_divisions
from tracea.semantic.proofs.epilogue import prove_epilogues
from tracea.semantic.proofs.extent import prove_scratch, prove_widths, span_guards
from tracea.semantic.proofs.flags import flag_buffers, prove_flags, workspaces
from tracea.semantic.proofs.groups import prove_groups
from tracea.semantic.proofs.index_range import prove_index_range
from tracea.semantic.proofs.initialized import prove_initialized
from tracea.semantic.proofs.matrix_groups import prove_products
from tracea.semantic.proofs.mbarriers import prove_mbarriers, tma_rings
from tracea.semantic.proofs.meetings import prove_meetings
from tracea.semantic.proofs.moments import prove_moments
from tracea.semantic.proofs.norm_gradient import prove_norm_gradient
from tracea.semantic.proofs.placed_rings import placed_rings, prove_placed_rings
from tracea.semantic.proofs.products import prove_fragment_products
from tracea.semantic.proofs.races import prove_races
from tracea.semantic.proofs.reduction import prove_reduction
from tracea.semantic.proofs.resources import prove_resources
from tracea.semantic.proofs.routines import prove_routines
from tracea.semantic.proofs.row_sums import prove_row_sums
from tracea.semantic.proofs.rules import barrier_buffers, prove_rules
from tracea.semantic.proofs.sectors import prove_sectors
from tracea.semantic.proofs.shapes import prove_shapes
from tracea.semantic.proofs.slots import group_rings, prove_slots
from tracea.semantic.proofs.sorted_rows import prove_sorted_rows
from tracea.semantic.proofs.sparse import listed_panels, prove_sparse
from tracea.semantic.proofs.swizzles import prove_swizzles
from tracea.semantic.proofs.tma import prove_tma
from tracea.semantic.proofs.walk import LoopKind, walk
from tracea.semantic.proofs.winograd import prove_winograd
from tracea.semantic.tile_kernel import BufferRole, MemorySpace, TileKernel
from tracea.targets.gpu import gpu_names, load_gpu

__all__ = ["prove"]


def prove(kernel: TileKernel, *, limits_bytes: Mapping[MemorySpace, int] | None = None) -> Certificate:
    """Prove everything that a kernel must have before it is emitted, for all arguments and trip counts.

    Raises:
        ProofFailed: a statement was not shown; it names the proof, the node and the goal.
    """
    for buffer in kernel.buffers:
        if not buffer.rank:  # slots, rows and columns are axes of every buffer
            raise refuse("shapes", buffer.name, "has no axis: a single element is an array of shape (1,)")
    sites = walk(kernel)
    if not sites:
        raise refuse("coverage", kernel.name, "has no node, so nothing is written")
    rings = group_rings(kernel) | tma_rings(kernel) | barrier_buffers(kernel)
    rings |= flag_buffers(kernel) | workspaces(kernel) | placed_rings(kernel)
    facts: list[Fact] = [
        *prove_divisions(kernel, sites),
        *prove_routines(kernel, sites),
        *prove_bounds(kernel, sites),
        *prove_shapes(kernel, sites),
        *prove_widths(kernel, sites),
        *prove_scratch(kernel, sites, limits_bytes),
        *prove_coverage(kernel, sites),
        *prove_reduction(kernel, sites),
        *prove_attention(kernel, sites),
        *prove_attention_gradient(kernel, sites),
        *prove_moments(kernel, sites),
        *prove_norm_gradient(kernel, sites),
        *prove_winograd(kernel, sites),
        *prove_epilogues(kernel, sites),
        *prove_row_sums(kernel, sites),
        *prove_sorted_rows(kernel, sites),
        *prove_fragment_products(kernel, sites),
        *prove_meetings(kernel, sites),
        *prove_races(kernel, sites, rings),
        *prove_sparse(kernel, sites),
        *prove_groups(kernel, sites),
        *prove_initialized(kernel, sites, rings | listed_panels(kernel)),
        *prove_slots(kernel, sites),
        *prove_placed_rings(kernel, sites),
        *prove_rules(kernel, sites),
        *prove_mbarriers(kernel, sites),
        *prove_products(kernel, sites),
        *prove_flags(kernel, sites),
    ]
    if any(loop.kind is LoopKind.BLOCK for site in sites for loop in site.loops):
        facts += [
            *prove_tma(kernel, sites),
            *prove_sectors(kernel, sites),
            *prove_swizzles(kernel),
            *prove_banks(kernel, sites),
        ]
        if kernel.op is not None:  # what no op asks for is never emitted, and its widths are nobody's
            facts += prove_index_range(kernel, sites)
        # A kernel for every stage count is a theorem, not a kernel to launch: its memory is not known.
        if kernel.target in gpu_names() and kernel.team_scratch_bytes.constant is not None:
            facts += prove_resources(kernel, load_gpu(kernel.target))
    ranges = (f"{param.minimum} <= {param.name} <= {param.maximum}" for param in kernel.params)
    guards = (*ranges, str(kernel.assumptions), *_alignments(kernel), *span_guards(kernel))
    return Certificate(kernel=kernel.name, facts=tuple(facts), guards=guards)


def _alignments(kernel: TileKernel) -> tuple[str, ...]:
    """Return what the addresses of a caller's buffers have to be multiples of, where any byte does not do."""
    given = (buffer for buffer in kernel.buffers if buffer.role is not BufferRole.SCRATCH and buffer.aligned_bytes > 1)
    return tuple(f"{buffer.name}: begins at a multiple of {buffer.aligned_bytes} bytes" for buffer in given)
