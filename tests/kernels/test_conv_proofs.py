"""The proof of windows: a convolution with one thing wrong is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.kernels.conformance import Case, build
from tests.kernels.conv_cases import amx_conv_cases, conv_cases
from tests.kernels.moved_regions import later, moved, narrowed, nothing, swapped, twice

from tracea.core.op import Conv2dOp
from tracea.errors import ProofFailed
from tracea.kernels.arguments import arguments
from tracea.kernels.registry import candidates
from tracea.semantic.index import FALSE
from tracea.semantic.nodes import CopyTile, ImageArea, MicroKernel, Node, Pack
from tracea.semantic.nodes_halo import Halo
from tracea.semantic.proofs import prove
from tracea.semantic.rewrite import edited, places
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets import load

CASES: dict[str, Case] = {case.name: case for case in (*conv_cases(), *amx_conv_cases())}
Change = Callable[[Node], Node]


def _area(node: Node, axis: int, *, first: int = 0, extent: int = 0) -> Node:
    """Move what a tile takes for the image's first row or column, or its number of them."""
    assert isinstance(node, MicroKernel)
    assert node.image is not None
    firsts, extents = list(node.image.first), list(node.image.extent)
    firsts[axis], extents[axis] = firsts[axis] + first, extents[axis] + extent
    return replace(node, image=ImageArea(first=tuple(firsts), extent=tuple(extents)))


MUTANTS: dict[str, tuple[str, type[Node], Change]] = {
    "the window stays in its row": (
        "conv_planar_blocks",
        MicroKernel,
        lambda node: replace(node, a=moved(node.a, 0, nothing)),  # type: ignore[attr-defined]
    ),
    "the window moves too far": (
        "conv_groups",
        MicroKernel,
        lambda node: replace(node, a=moved(node.a, 1, twice)),  # type: ignore[attr-defined]
    ),
    "every block of channels has the first one's taps": (
        "conv_planar_blocks",
        MicroKernel,
        lambda node: replace(node, b=moved(node.b, -2, nothing)),  # type: ignore[attr-defined]
    ),
    "a row of taps is left out": (
        "conv_last",
        MicroKernel,
        lambda node: replace(node, b=narrowed(node.b, -4)),  # type: ignore[attr-defined]
    ),
    "each tile has the first panel": (
        "conv_last",
        MicroKernel,
        lambda node: replace(node, b=moved(node.b, -5, nothing)),  # type: ignore[attr-defined]
    ),
    "a row of the image is left out": ("conv_planar_blocks", MicroKernel, lambda node: _area(node, 0, first=-1)),
    "the image's last row is left out": ("conv_planar_blocks", MicroKernel, lambda node: _area(node, 0, extent=-1)),
    "a column of the image is left out": ("conv_columns", MicroKernel, lambda node: _area(node, 1, first=-1)),
    "the image's last column is left out": ("conv_columns", MicroKernel, lambda node: _area(node, 1, extent=-1)),
    "blocks of channels are not added": (
        "conv_planar_blocks",
        MicroKernel,
        lambda node: replace(node, accumulate=FALSE),
    ),
    "taps are packed in another order": (
        "conv_last",
        Pack,
        lambda node: replace(node, source=swapped(node.source, 1, 2)),  # type: ignore[attr-defined]
    ),
    "every block of channels is the first one": (
        "conv_planar_blocks",
        CopyTile,
        lambda node: replace(node, source=moved(node.source, -1, nothing)),  # type: ignore[attr-defined]
    ),
    "every band is the first one's rows": (
        "conv_last",
        CopyTile,
        lambda node: replace(node, source=moved(node.source, -3, nothing)),  # type: ignore[attr-defined]
    ),
    "the image is padded by a row less": (
        "conv_planar",
        CopyTile,
        lambda node: replace(node, source=moved(node.source, -3, later)),  # type: ignore[attr-defined]
    ),
    "the image is padded by a column less": (
        "conv_last_blocks",
        CopyTile,
        lambda node: replace(node, source=moved(node.source, -2, later)),  # type: ignore[attr-defined]
    ),
    "the image on tiles is padded by a row less": (
        "amx_conv_last",
        Halo,
        lambda node: replace(node, source=moved(node.source, -3, later)),  # type: ignore[attr-defined]
    ),
    "a channel's window is a column later": (
        "depthwise_last",
        MicroKernel,
        lambda node: replace(node, a=moved(node.a, -2, later)),  # type: ignore[attr-defined]
    ),
    "every image is the first one": (
        "conv_planar",
        CopyTile,
        lambda node: replace(node, source=moved(node.source, 0, nothing)),  # type: ignore[attr-defined]
    ),
    "every band on tiles is the first one's rows": (
        "amx_conv_last",
        Halo,
        lambda node: replace(node, source=moved(node.source, -3, nothing)),  # type: ignore[attr-defined]
    ),
    "a granule is packed into the next block": (
        "amx_conv_last",
        Pack,
        lambda node: replace(node, source=moved(node.source, 3, nothing)),  # type: ignore[attr-defined]
    ),
    "the window on tiles is a row off": (
        "amx_conv_planar",
        MicroKernel,
        lambda node: replace(node, b=moved(node.b, 1, later)),  # type: ignore[attr-defined]
    ),
    "windows of a halo are read a column later": (
        "amx_stem_last",
        Halo,
        lambda node: replace(node, source=moved(node.source, -2, later)),  # type: ignore[attr-defined]
    ),
    "every band of windows is the first one's rows": (
        "amx_stem_planar",
        CopyTile,
        lambda node: replace(node, source=moved(node.source, -3, nothing)),  # type: ignore[attr-defined]
    ),
    "a halo merges other taps than its product": (
        "amx_stem_row_pairs",
        Halo,
        lambda node: replace(node, merged=(1, 5)),  # type: ignore[attr-defined]
    ),
    "windows are nearer to each other in the halo": (
        "amx_stem_last",
        Halo,
        lambda node: replace(node, steps=(2, 1)),  # type: ignore[attr-defined]
    ),
    "every granule has the first row of taps": (
        "amx_stem_last",
        Pack,
        lambda node: replace(node, source=moved(node.source, 1, nothing)),  # type: ignore[attr-defined]
    ),
    "a tap of each row is not packed": (
        "amx_stem_last",
        Pack,
        lambda node: replace(node, source=narrowed(node.source, 2)),  # type: ignore[attr-defined]
    ),
    "channels have their neighbours' taps": (
        "depthwise_last",
        MicroKernel,
        lambda node: replace(node, b=moved(node.b, 0, nothing)),  # type: ignore[attr-defined]
    ),
    "channels read the first ones": (
        "depthwise_default",
        MicroKernel,
        lambda node: replace(node, a=moved(node.a, -1, nothing)),  # type: ignore[attr-defined]
    ),
    "every band reads the image's first rows": (
        "depthwise_last",
        MicroKernel,
        lambda node: replace(node, a=moved(node.a, 1, nothing)),  # type: ignore[attr-defined]
    ),
}


def changed(kernel: TileKernel, kind: type[Node], change: Change) -> TileKernel:
    place, node = next((place, node) for place, node in places(kernel.body) if isinstance(node, kind))
    mutant = edited(kernel, place, change(node))
    assert mutant != kernel
    return mutant


@pytest.mark.parametrize("name", MUTANTS)
def test_convolution_with_one_thing_wrong_is_refused(name: str) -> None:
    case, kind, change = MUTANTS[name]
    kernel = build(CASES[case], "amx" if case.startswith("amx") else "avx512").kernel
    assert prove(kernel).facts
    with pytest.raises(ProofFailed):
        prove(changed(kernel, kind, change))


LONG: dict[str, tuple[str, dict[str, Any]]] = {
    "stride": ("avx512", {"size": (900, 901), "stride": (300, 300)}),
    "stride and dilation": ("avx2", {"size": (300, 301), "stride": (128, 127), "dilation": (127, 128)}),
    "dilation": ("avx512", {"size": (9, 11), "dilation": (30000, 30000), "padding": (30000, 30000)}),
    "dilation on tiles": ("amx", {"size": (9, 11), "dilation": (30000, 30000), "padding": (30000, 30000)}),
    "stride on tiles": ("amx", {"size": (900, 901), "stride": (290, 290), "dilation": (145, 145)}),
}


@pytest.mark.parametrize("groups", [1, 16])
@pytest.mark.parametrize("name", LONG)
def test_every_kernel_of_long_steps_is_proved_for_its_ops_own_sizes(name: str, groups: int) -> None:
    isa, numbers = LONG[name]
    op = Conv2dOp.of(channels=16, filters=16, kernel=(3, 3), groups=groups, **numbers)
    target = load(isa)
    found = candidates(op, target)
    assert found
    for variant in found:
        assert variant.build is not None
        assert variant.default_schedule is not None
        kernel = variant.build(op, variant.default_schedule(op, target), target)
        assert prove(kernel).facts
        assert arguments(kernel)["r"] == 3


def test_tiles_leave_long_strides_between_windows_to_vectors() -> None:
    far = Conv2dOp.of(channels=64, filters=64, kernel=(3, 3), size=(900, 901), stride=(17, 17))
    patches = Conv2dOp.of(channels=64, filters=64, kernel=(17, 17), size=(901, 901), stride=(17, 17))
    found = [{variant.id for variant in candidates(op, load("amx"))} for op in (far, patches)]
    assert ["conv.amx" in each for each in found] == [False, True]
    assert all("conv.packed" in each for each in found)
