"""What every line of a CPU kernel is made of: addresses and strides of regions, sizes, and declared types."""

from __future__ import annotations

from collections.abc import Sequence

from tracea.core.dtype import DType
from tracea.emitters.cpu.expression import C_TYPES
from tracea.emitters.cpu.index_text import index_text
from tracea.emitters.writer import Writer
from tracea.errors import EmitError
from tracea.semantic.access import Region
from tracea.semantic.index import Const, Index, total
from tracea.semantic.tile_kernel import Buffer, TileKernel

__all__ = ["Printer"]


class Printer:
    """Collects the two halves of a kernel's text: declarations (functors, tile types) and the function's body."""

    def __init__(self, kernel: TileKernel) -> None:
        self.kernel = kernel
        self.declarations = Writer()
        self.body = Writer()
        self.headers: set[str] = {"abi.h", "config.h"}
        self.streaming = False  # whether the task being printed stores past the caches
        self._declared: dict[str, str] = {}

    def use(self, *headers: str) -> None:
        """Note that the text calls something of these headers."""
        self.headers.update(headers)

    def buffer(self, region: Region) -> Buffer:
        """Return the buffer of a region."""
        return self.kernel.buffer(region.buffer)

    def address(self, region: Region) -> str:
        """Return a pointer to a region's first element."""
        buffer = self.buffer(region)
        offset = total(*(start * step for start, step in zip(region.offset, buffer.element_strides, strict=True)))
        text = self.text(offset)
        return region.buffer if text == "0" else f"{region.buffer} + {text}"

    def text(self, index: Index) -> str:
        """Return an index expression in its simplest spelling, and note the header that it needs."""
        spelled = index_text(index.simplify())
        if "_index(" in spelled:
            self.use("index.h")
        return spelled

    def strides(self, region: Region) -> tuple[str, str]:
        """Return the strides of a region's last two axes."""
        rows, columns = self.step(region, -2), self.step(region, -1)
        return self.text(rows), self.text(columns)

    def step(self, region: Region, axis: int) -> Index:
        """Return the stride of an axis counted from the end; 0 where there is no such axis, or one element only."""
        buffer = self.buffer(region)
        if buffer.rank < -axis or region.extent[axis] == Const(1) == buffer.shape[axis]:
            return Const(0)
        return buffer.element_strides[axis]

    def declare_type(self, text: str, stem: str) -> str:
        """Return the alias of a C++ type, declared once."""
        name = self._declared.get(text)
        if name is None:
            name = self._new_name(text, stem)
            self.declarations.line(f"using {name} = {text};")
        return name

    def declare_check(self, condition: str, reason: str) -> None:
        """Declare a static assertion once."""
        text = f'static_assert({condition}, "{reason}");'
        if text not in self._declared:
            self._declared[text] = ""
            self.declarations.line(text)

    def declare_struct(self, stem: str, lines: Sequence[str]) -> str:
        """Return the name of a struct with these lines, declared once."""
        text = "\n".join(lines)
        name = self._declared.get(text)
        if name is None:
            name = self._new_name(text, stem)
            with self.declarations.block(f"struct {name}", tail="};"):
                for line in lines:
                    self.declarations.line(line)
            self.declarations.line()
        return name

    def _new_name(self, text: str, stem: str) -> str:
        name = f"{stem}{sum(value.startswith(stem) for value in self._declared.values())}"
        self._declared[text] = name
        return name

    def c_type(self, buffer: Buffer) -> str:
        """Return the C++ storage type of a buffer's elements."""
        return self.storage(buffer.name, buffer.dtype)

    def storage(self, name: str, dtype: DType) -> str:
        """Return the C++ storage type of an array's elements."""
        if dtype not in C_TYPES:
            raise EmitError(node=name, detail=f"no storage type for {dtype.value}")
        return C_TYPES[dtype]
