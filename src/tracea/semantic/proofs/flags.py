"""Flags: what one block leaves in global scratch for another is read only after the flag that says so.

Worker ``w`` of a segment loop writes its own entry of the workspace, in its only segment that does not own its tile
(the first of its share, with ``first > 0``), then sets flag ``w``. The reader of entry ``p`` waits for flag ``p``
first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracea.semantic.linear import Polynomial
from tracea.semantic.nodes_async import AwaitFlag, SegmentLoop, SignalFlag
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.walk import Box, Site
from tracea.semantic.tile_kernel import BufferRole, MemorySpace, TileKernel

__all__ = ["flag_buffers", "prove_flags", "workspaces"]


def flag_buffers(kernel: TileKernel) -> frozenset[str]:
    """Return the names of the buffers that hold flags."""
    return frozenset(node.flag.buffer for node in kernel.body.walk() if isinstance(node, SignalFlag | AwaitFlag))


def workspaces(kernel: TileKernel) -> frozenset[str]:
    """Return the names of the global scratch buffers that blocks share, other than flags."""
    flags = flag_buffers(kernel)
    return frozenset(
        buffer.name
        for buffer in kernel.buffers
        if flags
        and buffer.role is BufferRole.SCRATCH
        and buffer.space is MemorySpace.GLOBAL
        and buffer.name not in flags
    )


def prove_flags(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove that each entry of a workspace is written once by its worker, signalled, awaited, and then read.

    Raises:
        ProofFailed: a wait or a signal is missing or is for another entry, or two workers may write one entry.
    """
    for name in sorted(workspaces(kernel)):
        touching = [(site, access, box) for site in sites for access, box in site.accesses() if box.buffer == name]
        writers = [(site, box) for site, access, box in touching if access.writes]
        readers = [(site, box) for site, access, box in touching if access.reads]
        if not writers or not readers:
            raise refuse("flags", name, f"has {len(writers)} writers and {len(readers)} readers")
        for site, box in writers:
            _written_once(site, box)
            _signalled(sites, site, box)
        for site, box in readers:
            _awaited(sites, site, box)
            _from_all_others(kernel, site, box)
            if not any(_same_shape(box, written) for _, written in writers):
                raise refuse("flags", site.label, f"reads an entry of {name} in another shape than it was written in")
        yield Fact("flags", name, f"{len(readers)} reads await the flags of their entries")


def _written_once(site: Site, box: Box) -> None:
    segment = next((loop.segment for loop in site.loops if loop.segment is not None), None)
    if segment is None or segment.worker is None or box.offset[0] != Polynomial.atom(segment.worker):
        raise refuse("flags", site.label, f"writes {box.buffer} elsewhere than in its worker's own entry")
    if not site.facts.proves(Polynomial.atom(segment.first) - 1):
        raise refuse(
            "flags", site.label, f"may write {box.buffer} in a segment that owns its tile: more than one a worker"
        )


def _signalled(sites: Sequence[Site], site: Site, box: Box) -> None:
    for signal in sites:
        node = signal.node
        if isinstance(node, SignalFlag) and signal.place > site.place and signal.guards == site.guards:
            flag = signal.box(node.flag)
            around = site.loops[: len(signal.loops)] == signal.loops
            if around and flag.offset == box.offset[: len(flag.offset)]:
                return
    raise refuse("flags", site.label, f"no flag is set for the entry of {box.buffer} after it was written")


def _awaited(sites: Sequence[Site], site: Site, box: Box) -> None:
    for wait in sites:
        node = wait.node
        if not isinstance(node, AwaitFlag) or wait.place > site.place or site.loops[: len(wait.loops)] != wait.loops:
            continue
        flag = wait.box(node.flag)
        inside = site.place[: len(wait.place) - 1] == wait.place[:-1]
        if inside and flag.offset == box.offset[: len(flag.offset)]:
            return
    raise refuse("flags", site.label, f"reads an entry of {box.buffer} and does not wait for its flag before")


def _from_all_others(kernel: TileKernel, site: Site, box: Box) -> None:
    """Show that a tile's owner takes the entries of the workers ``w + 1 … last``: their first segments are in it."""
    segment = next((loop.segment for loop in site.loops if loop.segment is not None), None)
    if segment is None or segment.worker is None:
        raise refuse("flags", site.label, f"reads {box.buffer} outside of the segments of a worker")
    worker, last = Polynomial.atom(segment.worker), Polynomial.atom(segment.last)
    loops = [loop for loop in site.loops if loop.var in box.offset[0].atoms() and loop.var != segment.worker]
    if len(loops) != 1 or box.offset[0] != worker + 1 + loops[0].atom or loops[0].count != last - worker:
        raise refuse(
            "flags",
            site.label,
            f"entries {box.offset[0].to_index()} of {box.buffer} were not shown to be those of workers w + 1 … last",
        )
    if not site.facts.proves_equal(Polynomial.atom(segment.first), Polynomial({})):
        raise refuse("flags", site.label, "only the owner of a tile (first == 0) may take what others left")
    node = next(node for node in kernel.body.walk() if isinstance(node, SegmentLoop))
    shares = site.canonical(node.tiles * node.steps) - site.canonical(node.workers)
    if not site.facts.proves(shares):
        raise refuse(
            "flags", site.label, "a worker without a share would leave nothing: assume tiles * steps >= workers"
        )


def _same_shape(read: Box, written: Box) -> bool:
    return read.extent == written.extent
