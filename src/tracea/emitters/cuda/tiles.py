"""The lines of the tile nodes: each prints the call of a primitive or of a tile routine, with addresses and masks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tracea.emitters.cuda.functors import epilogue_functor
from tracea.emitters.cuda.printer import Printer
from tracea.errors import EmitError
from tracea.semantic.access import Intrinsic, Region
from tracea.semantic.index import TRUE
from tracea.semantic.nodes import CopyTile, Node, PointwiseTile
from tracea.semantic.nodes_async import (
    AsyncCopy,
    AwaitFlag,
    Clear,
    CommitGroup,
    FragmentOp,
    LoadMatrix,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierWait,
    Mma,
    SignalFlag,
    StoreFragment,
    TmaCopy,
    WaitGroup,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
)
from tracea.semantic.tile_kernel import MemorySpace

__all__ = ["TILE_LINES"]

_WARP: Final = 32


def _async_copy(printer: Printer, node: AsyncCopy) -> None:
    rows, columns = (_constant(node, size) for size in node.target.extent[-2:])
    tile = printer.tile_type(node.target)
    printer.body.comment(f"AsyncCopy {node.source} -> {node.target.buffer}")
    printer.body.line(
        f"copy_async<{tile}, {rows}, {columns}, {node.chunk_bytes}>({printer.tile(node.target)}, "
        f"{printer.text(node.target.offset[-2])}, {printer.address(node.source)}, {printer.steps(node.source)}, "
        f"{printer.remaining(node.source) if node.masked else f'{rows}, {columns}'});"
    )


def _copy(printer: Printer, node: CopyTile) -> None:
    """Global memory to registers in the node's pieces, or registers to shared memory."""
    source, target = printer.buffer(node.source), printer.buffer(node.target)
    printer.body.comment(f"CopyTile {node.source} -> {node.target.buffer}")
    if source.space is MemorySpace.GLOBAL and target.space is MemorySpace.REGISTER and node.masked:
        rows, columns = (_constant(node, size) for size in node.target.extent[-2:])
        piece = node.chunk_bytes or source.dtype.nbytes
        printer.body.line(
            f"hold_tile<{rows}, {columns}, {piece}>({target.name}, {printer.address(node.source)}, "
            f"{printer.steps(node.source)}, {printer.remaining(node.source)});"
        )
    elif source.space is MemorySpace.REGISTER and target.space is MemorySpace.TEAM:
        rows, columns = (_constant(node, size) for size in node.source.extent[-2:])
        printer.body.line(
            f"place_tile<{printer.tile_type(node.target)}, {rows}, {columns}>({printer.tile(node.target)}, "
            f"{printer.text(node.target.offset[-2])}, {source.name});"
        )
    else:
        raise EmitError(node="CopyTile", detail=f"no routine from {source.space.value} to {target.space.value} memory")


def _commit(printer: Printer, node: CommitGroup) -> None:
    del node
    printer.body.line("cp_async_commit();")


def _wait(printer: Printer, node: WaitGroup) -> None:
    printer.body.line(f"cp_async_wait<{_constant(node, node.pending)}>();")


def _clear(printer: Printer, node: Clear) -> None:
    buffer = printer.buffer(node.target)
    if node.target != buffer.whole():
        raise EmitError(node=f"Clear {node.target}", detail="the routine clears a whole fragment")
    printer.body.line(f"clear({buffer.name});")


_LOADS: Final[Mapping[str, tuple[str, int]]] = {"load_a": ("load_a", 1), "load_b": ("load_b", 2)}


def _load(printer: Printer, node: LoadMatrix) -> None:
    name = node.intrinsic.name
    if name not in _LOADS:
        raise EmitError(node=name, detail="no load of this name")
    routine, fragments = _LOADS[name]
    form = node.intrinsic.attribute("form")
    tile = printer.tile_type(node.source)
    source = f"{printer.tile(node.source)}, {printer.place(node.source)}"
    if form == "fma":
        lanes = node.intrinsic.attribute("lane_rows" if name == "load_a" else "lane_columns")
        printer.body.line(f"{routine}_lanes<{tile}, {lanes}>({printer.fragment(node.target)}, {source});")
        return
    suffix = "_tf32" if node.intrinsic.attribute("element") == "tf32" else ""
    suffix += "" if node.intrinsic.attribute("major") == "k" else "_transposed"
    targets = ", ".join(printer.fragment(_fragment(node.target, number)) for number in range(fragments))
    printer.body.line(f"{routine}{suffix}<{tile}>({targets}, {source});")


def _fragment(region: Region, number: int) -> Region:
    """Return the fragment of that number of a region of several."""
    axis = len(region.offset) - 3
    offset = tuple(start + number if at == axis else start for at, start in enumerate(region.offset))
    return Region(region.buffer, offset, region.extent)


def _mma(printer: Printer, node: Mma) -> None:
    if node.accumulate != TRUE:
        raise EmitError(node="Mma", detail="mma.sync adds in place: begin the sum by Clear")
    operands = ", ".join(printer.fragment(region) for region in (node.c, node.a, node.b))
    printer.body.line(f"{_multiply(node.intrinsic)}({operands});")


def _multiply(intrinsic: Intrinsic) -> str:
    if intrinsic.name != "multiply":
        raise EmitError(node=intrinsic.name, detail="no product of this name")
    if intrinsic.attribute("form") == "fma":
        return "multiply_lanes"
    element, native = str(intrinsic.attribute("element")), str(intrinsic.attribute("native"))
    if native in ("m16n8k8", "m8n8k16") and element != "tf32":
        return "multiply_halves" if element == "f16" else "multiply_quarters"
    return f"mma_{native}_{element}" if element in ("tf32", "s8") else f"mma_{native}<{element}>"


def _store(printer: Printer, node: StoreFragment) -> None:
    if node.intrinsic.name != "store_sums":
        raise EmitError(node=node.intrinsic.name, detail="no store of this name")
    form = node.intrinsic.attribute("form")
    if form == "fma":
        epilogue = node.epilogue
        functor = "Identity{}" if epilogue is None else epilogue_functor(printer, epilogue.expr, epilogue.operands)
        rows, columns = node.intrinsic.attribute("lane_rows"), node.intrinsic.attribute("lane_columns")
        printer.body.comment(f"StoreFragment {node.target}")
        printer.body.line(
            f"store_lanes<{rows}, {columns}>({printer.fragment(node.source)}, {printer.address(node.target)}, "
            f"{printer.steps(node.target)}, {printer.last_extents(node.target)}, {functor});"
        )
        return
    if node.epilogue is not None:
        raise EmitError(node="StoreFragment", detail="sums are staged as they are, the epilogue follows")
    tile = printer.tile_type(node.target)
    if form == "wgmma":
        printer.body.line(
            f"stage_group_sums<{tile}>({printer.tile(node.target)}, {printer.place(node.target)}, "
            f"{printer.fragment(node.source)}, {printer.text(node.source.offset[-1])});"
        )
        return
    printer.body.line(
        f"stage_sums<{tile}>({printer.tile(node.target)}, {printer.place(node.target)}, "
        f"{printer.fragment(node.source)});"
    )


def _store_rows(printer: Printer, node: PointwiseTile) -> None:
    if node.intrinsic.name != "store_rows" or not node.inputs or not isinstance(node.inputs[0], Region):
        raise EmitError(node=node.intrinsic.name, detail="the only pointwise routine stores staged rows")
    staged = node.inputs[0]
    shape = printer.buffer(staged).shape[-2:]
    rows, columns = (_constant(node, size) for size in shape)
    functor = epilogue_functor(printer, node.expr, node.inputs[1:])
    routine = "store_rows" if printer.lanes == _WARP else "store_group_rows"
    printer.body.comment(f"PointwiseTile {node.target}")
    printer.body.line(
        f"{routine}<{printer.tile_type(staged)}, {rows}, {columns}>({printer.tile(staged)}, "
        f"{printer.address(node.target)}, {printer.steps(node.target)}, {printer.last_extents(node.target)}, "
        f"{functor});"
    )


def _fragment_op(printer: Printer, node: FragmentOp) -> None:
    match node.intrinsic.name, node.inputs, node.updates, node.outputs:
        case "take_sums", (Region() as left,), (sums,), ():
            printer.body.line(f"take_sums({printer.fragment(sums)}, {printer.address(left)});")
        case "leave_sums", (Region() as sums,), (), (left,):
            printer.body.line(f"leave_sums({printer.address(left)}, {printer.fragment(sums)});")
        case _:
            raise EmitError(node=node.intrinsic.name, detail="no such operation on fragments")


def _signal(printer: Printer, node: SignalFlag) -> None:
    printer.body.line(f"signal_flag({printer.address(node.flag)});")


def _await(printer: Printer, node: AwaitFlag) -> None:
    printer.body.line(f"await_flag({printer.address(node.flag)});")


def _mbarrier_wait(printer: Printer, node: MbarrierWait) -> None:
    printer.body.line(f"mbarrier_wait({printer.mbarrier(node.barrier, node.slot)}, {printer.text(node.parity)});")


def _mbarrier_expect(printer: Printer, node: MbarrierExpect) -> None:
    address = printer.mbarrier(node.barrier, node.slot)
    printer.body.line(f"mbarrier_arrive_expect({address}, {printer.text(node.nbytes)});")


def _mbarrier_arrive(printer: Printer, node: MbarrierArrive) -> None:
    printer.body.line(f"release_slot({printer.mbarrier(node.barrier, node.slot)});")


def _tma(printer: Printer, node: TmaCopy) -> None:
    name = printer.tensor_map(node.descriptor)
    coordinates = ", ".join(printer.text(start) for start in reversed(node.origin))  # the contiguous axis first
    printer.body.comment(f"TmaCopy {node.source} -> {node.target.buffer}")
    printer.body.line(
        f"tma_load<{len(node.origin)}>({printer.tile(node.target)}, args.{name}, "
        f"{printer.mbarrier(node.barrier, node.slot)}, {coordinates});"
    )


_WGMMA: Final[Mapping[str, str]] = {
    "f16": "wgmma_m64k16<{n}, f16, false, false>",
    "bf16": "wgmma_m64k16<{n}, bf16, false, false>",
    "e4m3": "wgmma_m64k32<{n}, e4m3>",
    "e5m2": "wgmma_m64k32<{n}, e5m2>",
    "s8": "wgmma_m64k32_s8<{n}>",
}


def _wgmma(printer: Printer, node: Wgmma) -> None:
    element = str(node.intrinsic.attribute("element"))
    if element not in _WGMMA or node.accumulate != TRUE:
        raise EmitError(node=f"Wgmma {element}", detail="no such product, or one that does not add to cleared sums")
    routine = _WGMMA[element].format(n=node.intrinsic.attribute("n"))
    a, b = (
        f"tile_descriptor<{printer.tile_type(region)}>({printer.tile(region)}, {printer.place(region)})"
        for region in (node.a, node.b)
    )
    printer.body.line(f"{routine}({printer.fragment(node.c)}, {a}, {b}, true);")


def _wgmma_fence(printer: Printer, node: WgmmaFence) -> None:
    del node
    printer.body.line("wgmma_fence();")


def _wgmma_commit(printer: Printer, node: WgmmaCommit) -> None:
    del node
    printer.body.line("wgmma_commit();")


def _wgmma_wait(printer: Printer, node: WgmmaWait) -> None:
    pending = _constant(node, node.pending)
    printer.body.line(f"wgmma_wait<{pending}>();")
    if pending == 0:
        sums = {each.c.buffer for each in printer.kernel.body.walk() if isinstance(each, Wgmma)}
        for name in sorted(sums):
            printer.body.line(f"settle({name});")


def _constant(node: Node, index: Any) -> int:
    known = index.constant
    if known is None:
        raise EmitError(node=type(node).__name__, detail=f"{index} is a template argument and must be a constant")
    return int(known)


TILE_LINES: Mapping[type[Node], Callable[[Printer, Any], None]] = {
    AsyncCopy: _async_copy,
    AwaitFlag: _await,
    FragmentOp: _fragment_op,
    SignalFlag: _signal,
    Clear: _clear,
    CopyTile: _copy,
    CommitGroup: _commit,
    LoadMatrix: _load,
    Mma: _mma,
    PointwiseTile: _store_rows,
    MbarrierArrive: _mbarrier_arrive,
    MbarrierExpect: _mbarrier_expect,
    MbarrierWait: _mbarrier_wait,
    StoreFragment: _store,
    TmaCopy: _tma,
    Wgmma: _wgmma,
    WgmmaCommit: _wgmma_commit,
    WgmmaFence: _wgmma_fence,
    WgmmaWait: _wgmma_wait,
    WaitGroup: _wait,
}
