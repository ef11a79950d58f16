"""What every line of a CUDA kernel is made of: addresses of regions, shared tiles, index text, declared types."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tracea.emitters.cuda.types import STORAGE
from tracea.emitters.index_text import index_text, predicate_text
from tracea.emitters.kernel_source import TensorMapSpec
from tracea.emitters.writer import Writer
from tracea.errors import EmitError
from tracea.semantic.access import Region
from tracea.semantic.index import Const, Index, Lookup, Predicate, product, total
from tracea.semantic.nodes_async import TmaDescriptor
from tracea.semantic.swizzle import Swizzle
from tracea.semantic.tile_kernel import Buffer, MemorySpace, TileKernel

__all__ = ["Printer"]

_WORD_BYTES = 4
_PIECE_BYTES = 16
_TILE_RANK = 2
_MBARRIER_BYTES = 8


class Printer:
    """Collects the two halves of a kernel's text: declarations (functors, tile types) and the function's body."""

    def __init__(self, kernel: TileKernel) -> None:
        self.kernel = kernel
        self.declarations = Writer()
        self.body = Writer()
        self._declared: dict[str, str] = {}
        self.lanes = 32  # of the executor whose lines are printed
        self.tensor_maps: dict[str, TensorMapSpec] = {}

    def mbarrier(self, name: str, slot: Index) -> str:
        """Return the address of one barrier of an array."""
        text = self.text(slot * _MBARRIER_BYTES)
        return name if text == "0" else f"{name} + {text}"

    def tensor_map(self, descriptor: TmaDescriptor) -> str:
        """Return the name of the tensor map that a copy uses, declared once."""
        buffer = self.kernel.buffer(descriptor.buffer)
        name = f"{buffer.name}_map"
        spec = TensorMapSpec(
            name=name,
            buffer=buffer.name,
            dtype=buffer.dtype,
            shape=buffer.shape,
            strides=buffer.element_strides,
            box=descriptor.box,
            swizzle_bytes=descriptor.swizzle_bytes,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        )
        if self.tensor_maps.setdefault(name, spec) != spec:
            raise EmitError(node=name, detail="one buffer is copied by two kinds of boxes")
        return name

    def buffer(self, region: Region) -> Buffer:
        """Return the buffer of a region."""
        return self.kernel.buffer(region.buffer)

    def text(self, index: Index) -> str:
        """Return an index expression in its simplest spelling; an entry of a table is a load of global memory."""
        if isinstance(index, Lookup):
            return f"ld_global<int32_t>({index.table} + {self.text(index.index)})"
        return index_text(index.simplify())

    def condition(self, predicate: Predicate) -> str:
        """Return the spelling of a condition."""
        return predicate_text(predicate)

    def storage(self, buffer: Buffer) -> str:
        """Return the C++ storage type of a buffer's elements."""
        if buffer.dtype not in STORAGE:
            raise EmitError(node=buffer.name, detail=f"no storage type for {buffer.dtype.value}")
        return STORAGE[buffer.dtype]

    # ---- global memory ----

    def address(self, region: Region) -> str:
        """Return a pointer to a region's first element: strides are 64 bits wide, and so are the products."""
        buffer = self.buffer(region)
        terms: list[str] = []
        for start, step in zip(region.offset, buffer.element_strides, strict=True):
            offset = start.simplify()
            if offset == Const(0) or step == Const(0):
                continue
            spelled = index_text(offset)
            if step == Const(1):
                terms.append(spelled)
            else:
                factor = spelled if spelled.isidentifier() else f"({spelled})"
                terms.append(f"{factor} * {self._wide(step)}")
        return " + ".join((region.buffer, *terms))

    def _wide(self, step: Index) -> str:
        known = step.constant
        if known is not None:
            return f"int64_t{{{known}}}"
        text = self.text(step)
        return text if text.isidentifier() else f"({text})"

    def step(self, region: Region, axis: int) -> Index:
        """Return the stride of an axis counted from the end; 0 where there is no such axis, or one element only."""
        buffer = self.buffer(region)
        if buffer.rank < -axis or buffer.shape[axis] == Const(1):
            return Const(0)
        return buffer.element_strides[axis]

    def steps(self, region: Region) -> str:
        """Return the strides of a region's last two axes as two arguments."""
        return f"{self.text(self.step(region, -2))}, {self.text(self.step(region, -1))}"

    def remaining(self, region: Region) -> str:
        """Return how many rows and columns of the buffer lie at and after a region's first element."""
        buffer = self.buffer(region)
        left = [size - start for size, start in zip(buffer.shape[-2:], region.offset[-2:], strict=True)]
        return ", ".join(map(self.text, left))

    def last_extents(self, region: Region) -> str:
        """Return the rows and columns of a region as two arguments."""
        return ", ".join(map(self.text, region.extent[-2:]))

    # ---- shared memory ----

    def tile_type(self, region: Region) -> str:
        """Return the type of the tiles of a shared buffer: its last two axes, and its swizzle."""
        buffer = self.buffer(region)
        if buffer.space is not MemorySpace.TEAM:
            raise EmitError(node=buffer.name, detail=f"a tile in {buffer.space.value} memory has no address")
        swizzle = buffer.swizzle
        layout = "" if swizzle is None else f", {_layout(swizzle)}"
        stem = "".join(word.capitalize() for word in buffer.name.removesuffix("s").split("_"))
        return self.declare_type(f"SharedTile<{self.storage(buffer)}, {self.text(buffer.shape[-1])}{layout}>", stem)

    def tile(self, region: Region) -> str:
        """Return the address of the tile that a region of a shared buffer lies in: all axes but the last two."""
        buffer = self.buffer(region)
        offset = total(
            *(
                start * product(*buffer.shape[axis + 1 :], buffer.dtype.nbytes)
                for axis, start in enumerate(region.offset[:-2])
            )
        )
        text = self.text(offset)
        return region.buffer if text == "0" else f"{region.buffer} + {text}"

    def place(self, region: Region) -> str:
        """Return a region's first row and column within its tile as two arguments."""
        return ", ".join(map(self.text, region.offset[-2:]))

    # ---- registers ----

    def fragment(self, region: Region) -> str:
        """Return a lane's part of a fragment: subscripts for the axes before the lanes."""
        buffer = self.buffer(region)
        subscripts = "".join(f"[{self.text(start)}]" for start in region.offset[: buffer.rank - 2])
        return f"{region.buffer}{subscripts}"

    def declaration(self, buffer: Buffer, *, as_words: bool) -> str:
        """Return the declaration of a lane's part of a register buffer, as 32-bit words or as its elements.

        A buffer of two axes has no lanes: it is a tile that the lanes hold in pieces of 16 bytes.
        """
        if buffer.rank == _TILE_RANK:
            nbytes = prod(int(size.constant or 0) for size in buffer.shape) * buffer.dtype.nbytes
            return f"Words<4> {buffer.name}[{-(-nbytes // (32 * _PIECE_BYTES))}];"
        *outer, _, elements = (int(size.constant or 0) for size in buffer.shape)
        kind, count = self.storage(buffer), elements
        if as_words:
            kind, count = "uint32_t", elements * buffer.dtype.nbytes // _WORD_BYTES
        if not prod((*outer, count)):
            raise EmitError(node=buffer.name, detail="registers have constant sizes")
        return f"{kind} {buffer.name}{''.join(f'[{size}]' for size in (*outer, count))};"

    # ---- declarations ----

    def declare_type(self, text: str, stem: str) -> str:
        """Return the alias of a C++ type for what ``stem`` names, declared once."""
        key = f"{stem} = {text}"
        name = self._declared.get(key)
        if name is None:
            name = self._new_name(key, stem)
            self.declarations.line(f"using {name} = {text};")
        return name

    def declare_struct(self, stem: str, lines: Sequence[str]) -> str:
        """Return the name of a struct with these lines, declared once."""
        text = "\n".join(lines)
        name = self._declared.get(text)
        if name is None:
            name = self._new_name(text, stem)
            self.declarations.line()
            with self.declarations.block(f"struct {name}", tail="};"):
                for line in lines:
                    self.declarations.line(line)
        return name

    def _new_name(self, text: str, stem: str) -> str:
        taken = set(self._declared.values())
        name, number = stem, 1
        while name in taken:
            number += 1
            name = f"{stem}{number}"
        self._declared[text] = name
        return name


def _layout(swizzle: Swizzle) -> str:
    also = "" if swizzle.also is None else f", {_layout(swizzle.also)}"
    return f"Swizzle<{swizzle.bits}, {swizzle.base}, {swizzle.shift}{also}>"
