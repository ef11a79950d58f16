"""What every line of a CPU kernel is made of: addresses of regions, sizes, and functors for scalar expressions."""

from __future__ import annotations

from collections.abc import Sequence

from tracea.core.dtype import DType
from tracea.core.expr import Expr
from tracea.emitters.cpu.expression import C_TYPES, print_expression
from tracea.emitters.cpu.index_text import index_text
from tracea.emitters.writer import Writer
from tracea.errors import EmitError
from tracea.semantic.index import Const, Index, total
from tracea.semantic.nodes import Region, Scalar
from tracea.semantic.tile_kernel import Buffer, TileKernel

__all__ = ["Functor", "Printer"]


class Functor:
    """A printed functor: its name, and the members that each call site has to give it, in order."""

    __slots__ = ("members", "name")

    def __init__(self, name: str, members: tuple[str, ...]) -> None:
        self.name = name
        self.members = members


class Printer:
    """Collects the two halves of a kernel's text: declarations (functors, tile types) and the function's body."""

    def __init__(self, kernel: TileKernel) -> None:
        self.kernel = kernel
        self.declarations = Writer()
        self.body = Writer()
        self.headers: set[str] = {"abi.h", "config.h"}
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
        """Return the stride of an axis of a region, counted from the end; 0 where there is no such axis or one element only."""
        buffer = self.buffer(region)
        if buffer.rank < -axis or region.extent[axis] == Const(1) == buffer.shape[axis]:
            return Const(0)
        return buffer.element_strides[axis]

    def declare_type(self, text: str, stem: str) -> str:
        """Return the alias of a C++ type, declared once."""
        name = self._declared.get(text)
        if name is None:
            name = f"{stem}{sum(value.startswith(stem) for value in self._declared.values())}"
            self._declared[text] = name
            self.declarations.line(f"using {name} = {text};")
        return name

    def declare_check(self, condition: str, reason: str) -> None:
        """Declare a static assertion once."""
        text = f'static_assert({condition}, "{reason}");'
        if text not in self._declared:
            self._declared[text] = ""
            self.declarations.line(text)

    def functor(
        self, stem: str, expr: Expr, operands: Sequence[Region | Scalar], *, first: int, result: DType | None = None
    ) -> Functor:
        """Print a functor of ``expr`` at a position of a tile; operand ``i`` is ``Input(first + i)``.

        With ``first == 1`` its first argument is the vector of Input(0). ``result`` is the storage that an integer result is
        rounded to.
        """
        self.use("vec.h", "math.h", "convert.h")
        members: list[tuple[str, str]] = []
        loads: list[tuple[int, str]] = []
        used = set(expr.inputs())
        for position, operand in enumerate(operands):
            index = first + position
            name = f"x{index}"
            if isinstance(operand, Scalar):
                members.append(("double", name))
                load = f"broadcast<V>(typename V::element({name}))"
            else:
                members.append((f"const {C_TYPES[self.buffer(operand).dtype]}*", name))
                load = self._load(operand, name, members)
            if index in used:
                loads.append((index, load))
        writer = Writer()
        for kind, name in members:
            writer.line(f"{kind} {name};")
        argument = "V x0, " if first == 1 else ""
        place = "[[maybe_unused]] int64_t row, [[maybe_unused]] int64_t col, [[maybe_unused]] int64_t lanes"
        writer.line("template <class V>")
        with writer.block(f"TRACEA_INLINE V operator()({argument}{place}) const"):
            for index, load in loads:
                writer.line(f"const V v{index} = {load};")
            names = {index: f"v{index}" for index, _ in loads} | ({0: "x0"} if first == 1 else {})
            value = print_expression(writer, expr, names)
            if result is not None and not result.is_float:
                value = f"round_to<{C_TYPES[result]}>({value})"
            writer.line(f"return {value};")
        text = writer.text()
        name = self._declared.get(text)
        if name is None:
            name = f"{stem}{sum(value.startswith(stem) for value in self._declared.values())}"
            self._declared[text] = name
            with self.declarations.block(f"struct {name}", tail="};"):
                for line in text.splitlines():
                    self.declarations.line(line)
        return Functor(name, tuple(member for _, member in members))

    def _load(self, operand: Region, name: str, members: list[tuple[str, str]]) -> str:
        row, column = self.step(operand, -2), self.step(operand, -1)
        place = name
        if row != Const(0):
            place += f" + row * {self._member(row, f'{name}_row', members)}"
        if column == Const(0):
            return f"load_broadcast<V>({place})"
        if column == Const(1):
            return f"load_partial<V>({place} + col, lanes)"
        step = self._member(column, f"{name}_col", members)
        return f"load_strided<V>({place} + col * {step}, {step}, lanes)"

    def _member(self, step: Index, name: str, members: list[tuple[str, str]]) -> str:
        if isinstance(step, Const):
            return str(step.value)
        members.append(("int64_t", name))
        return name

    def instance(self, functor: Functor, operands: Sequence[Region | Scalar], *, first: int) -> str:
        """Return the construction of a functor for operands that begin at a tile's first element."""
        values: dict[str, str] = {}
        for position, operand in enumerate(operands):
            name = f"x{first + position}"
            if isinstance(operand, Scalar):
                values[name] = operand.name
                continue
            values[name] = self.address(operand)
            values[f"{name}_row"], values[f"{name}_col"] = self.strides(operand)
        return f"{functor.name}{{{', '.join(values[member] for member in functor.members)}}}"

    def c_type(self, buffer: Buffer) -> str:
        """Return the C++ storage type of a buffer's elements."""
        if buffer.dtype not in C_TYPES:
            raise EmitError(node=buffer.name, detail=f"no storage type for {buffer.dtype.value}")
        return C_TYPES[buffer.dtype]
