"""What a lowering function may use: it appends core ops for one captured node.

Leading axes are collapsed where the layout allows: a product, a row op and what follows it element by element work on
(rows, columns), with one reshape where a value enters and one where it leaves. Kernels then see matrices, and the
fusions find neighbours that no view separates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, TypeAlias

import torch

from tracea.core.dtype import DType
from tracea.core.expr import Cast, Constant, Expr, Input
from tracea.core.graph import Graph, Node
from tracea.core.op import Epilogue, GemmOp, PointwiseOp, ReduceKind, ReduceOp, RowKind, RowOp, ViewKind
from tracea.core.tensor_type import Dim, TensorType, broadcast_shapes
from tracea.errors import InvalidInput, InvalidStride
from tracea.interface.torch.images import Images
from tracea.interface.torch.integers import Integers
from tracea.interface.torch.lower_indexed import Indexed
from tracea.interface.torch.lower_writes import Hole
from tracea.interface.torch.types import torch_dtype_of

__all__ = ["Lowering", "Operand", "Refusal"]

Operand: TypeAlias = Node | float | int | bool


class Refusal(Exception):
    """A captured node cannot be expressed; the capture collects these and raises one typed error for all."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


class Lowering:
    """Appends the ops of one captured node after another to a graph.

    ``shape`` and ``dtype`` are the current node's result, of several results the first, as torch inferred them, and
    ``asked`` which of several are read; ``is_part`` says that torch made the node of an operator that was written.
    ``tensors`` are the graph's constants, by node id, to which ``new_constant`` adds one.
    """

    def __init__(
        self,
        graph: Graph,
        scalars: Mapping[str, float],
        tensors: Mapping[str, torch.Tensor],
        new_constant: Callable[[str, torch.Tensor], Node],
    ) -> None:
        self.graph = graph
        self.images = Images(graph, self.label)
        self.integers = Integers(graph, tensors)
        self.name = ""
        self.shape: tuple[Dim, ...] = ()
        self.dtype = DType.F32
        self.asked: frozenset[int] = frozenset()
        self.is_part = False
        self.indexed: list[Indexed] = []  # what the module reads rows by
        self.routings: dict[tuple[str, int, int], tuple[Node, Node]] = {}  # tables of groups of rows, by who says where
        self.orders: dict[str, int] = {}  # places of elements in order, all of an axis, and the axis
        self.holes: dict[str, Hole] = {}  # of values that are others but for a part, by node id
        self._scalars = scalars  # values of constants of one element, by node id
        self._tensors, self._new_constant = tensors, new_constant
        self._counted: dict[tuple[int, torch.dtype], Node] = {}
        self._matrix_of: dict[str, Node] = {}  # a reshaped matrix or its source, by the id of the tensor of more axes

    def begin(self, name: str, shape: tuple[Dim, ...], dtype: DType, asked: frozenset[int] = frozenset()) -> None:
        """State the captured node that is lowered next."""
        self.name, self.shape, self.dtype, self.asked = name, shape, dtype, asked

    def refuse(self, reason: str, remedy: str = "rewrite the line, or leave this part of the model out") -> NoReturn:
        """Give the current node up."""
        raise Refusal(reason, remedy)

    def label(self, part: str = "") -> str:
        """Return a free id that names the captured node, and the part of it."""
        wanted = f"{self.name}.{part}" if part else self.name
        return wanted if wanted not in self.graph else self.graph.fresh(wanted)

    def counted(self, count: int, dtype: torch.dtype) -> Node:
        """Return 0, 1, ... as a constant, which all who count so far share."""
        key = (count, dtype)
        if key not in self._counted:
            kind = str(dtype).removeprefix("torch.")
            numbers = torch.arange(count, dtype=dtype, device="cpu")
            self._counted[key] = self._new_constant(f"count.{count}.{kind}", numbers)
        return self._counted[key]

    def constant(self, tensor: torch.Tensor, part: str) -> Node:
        """Return numbers that the capture computed as a constant, which is one for all who give the same tensor."""
        return self._new_constant(self.label(part), tensor)

    def filled(self, value: float, shape: Sequence[Dim]) -> Node:
        """Return a tensor of the current node's element type that holds one value: a view of one stored element."""
        one = torch.full((1,) * len(shape), value, dtype=torch_dtype_of(self.dtype), device="cpu")
        return self.expand(self._new_constant(self.label("value"), one), shape)

    def check_indices(self, indices: Node, rows: int) -> None:
        """Have each run check that indices name rows of so many, unless they do whatever a call gives."""
        known = self.integers.of(indices)
        if not (known.low >= 0 and known.high < rows):
            self.indexed.append(Indexed(indices, rows))

    def constant_of(self, node: Node) -> torch.Tensor | None:
        """Return the numbers of a node that is a constant; None if it is none."""
        return self._tensors.get(node.id)

    def number_of(self, operand: Operand) -> Operand:
        """Return the number of a constant without axes; any other operand as it is."""
        return self._scalars.get(operand.id, operand) if isinstance(operand, Node) else operand

    # Element by element.

    def pointwise(self, expr: Expr, *operands: Operand, dtype: DType | None = None, exact: bool = False) -> Node:
        """Append an expression, ``Input(i)`` of which is operand i; a number becomes a constant of it.

        ``exact`` says that the expression only moves or compares values, so that integers stay what they are.
        """
        out_dtype = self.dtype if dtype is None else dtype
        tensors: list[Node] = []
        value = expr.substitute({index: self._term(operand, tensors) for index, operand in enumerate(operands)})
        if not (exact or out_dtype.is_float or out_dtype is DType.BOOL):
            self._check_integers(value, tensors, out_dtype)
        if not tensors:
            self.refuse("no operand is a tensor of the run", "compute it once, outside of forward")
        whole = broadcast_shapes(tensor.type.shape for tensor in tensors)
        batches = self.images.batches(tensors, whole)
        if batches is not None:
            return self.images.alone(self._element_by_element(value, batches, (1, *whole), out_dtype))
        return self._element_by_element(value, tensors, whole, out_dtype)

    def _element_by_element(
        self, value: Expr, tensors: Sequence[Node], whole: tuple[Dim, ...], out_dtype: DType
    ) -> Node:
        pixels = self.images.operands(tensors, whole)
        if pixels is not None:
            over_pixels = PointwiseOp(expr=value, inputs=_types(pixels), out_dtype=out_dtype)
            return self.images.of_pixels(self.add(over_pixels, pixels, part="pixels"), whole)
        matrices = self._as_matrices(tensors)
        if matrices is None:
            return self.add(PointwiseOp(expr=value, inputs=_types(tensors), out_dtype=out_dtype), tensors)
        op = PointwiseOp(expr=value, inputs=_types(matrices), out_dtype=out_dtype)
        return self.from_matrix(self.add(op, matrices), whole)

    def _check_integers(self, value: Expr, tensors: Sequence[Node], dtype: DType) -> None:
        """Refuse whole numbers that may be others than torch's: kernels compute them in f64, and do not wrap them."""
        if not self.integers.are_exact(value, tensors, dtype):
            bound = {DType.I64: "2^53, up to which kernels are exact", DType.I32: "2^31"}.get(dtype)
            self.refuse(
                f"arithmetic on {dtype.value}, which is taken of i64 and i32 alone"
                if bound is None
                else f"arithmetic on {dtype.value} that may leave {bound}",
                "compute it before the call and give forward the result, or compute in i64 (x.long()) or in floats; "
                "clamp floats before they become integers",
            )

    def _term(self, given: Operand, tensors: list[Node]) -> Expr:
        operand = self.number_of(given)
        if not isinstance(operand, Node):
            if not isinstance(operand, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
                self.refuse(
                    "a number that only a run knows",
                    "keep values as tensors, without .item(); make dynamic axes static",
                )
            return Constant(float(operand))
        if operand not in tensors:
            tensors.append(operand)
        return Input(tensors.index(operand))

    def _as_matrices(self, tensors: Sequence[Node]) -> list[Node] | None:
        # Only behind a product or a row op, which made a matrix: a chain that has none gains nothing.
        shape = broadcast_shapes(tensor.type.shape for tensor in tensors)
        if not any(tensor.id in self._matrix_of and tensor.type.shape == shape for tensor in tensors):
            return None
        found: list[Node] = []
        for tensor in tensors:
            is_row = tensor.type.rank <= 1
            matrix = tensor if is_row else self.as_matrix(tensor) if tensor.type.shape == shape else None
            if matrix is None:
                return None
            found.append(matrix)
        return found

    def cast(self, x: Node, dtype: DType) -> Node:
        """Append a conversion to ``dtype``; none where it is x's own."""
        if x.type.dtype is dtype:
            return x
        if dtype.holds(x.type.dtype):
            return self.pointwise(Input(0), x, dtype=dtype, exact=True)
        value: Expr = Input(0)
        if x.type.dtype.is_float and not dtype.is_float:
            value = Cast(value, x.type.dtype)  # also where what made x is computed without rounding: integers jump
        return self.pointwise(Cast(value, dtype), x, dtype=dtype, exact=True)

    def copy(self, x: Node) -> Node:
        """Append a row-major copy."""
        op = PointwiseOp(expr=Input(0), inputs=(x.type,), out_dtype=x.type.dtype)
        return self.add(op, [x], part="copy")

    def makes_nothing_of(self, x: Node) -> bool:
        """Tell whether neither a tensor nor the current node's result has an element."""
        return x.type.is_static and 0 in x.type.shape and 0 in self.shape

    def nothing(self, x: Node) -> Node:
        """Append the current node's result without elements, as a view of none of x's."""
        if x.type.elements:
            x = self.slice(x if x.type.rank else self.reshape(x, (1,)), 0, 0, 0)
        return self.reshape(self.cast(x, self.dtype), self.shape)

    # Views.

    def reshape(self, x: Node, shape: Sequence[Dim]) -> Node:
        """Append a reshape, with a copy before it where no strides express it."""
        wanted = tuple(shape)
        if x.type.shape == wanted:
            return x
        if x.id in self._matrix_of and self._matrix_of[x.id].type.shape == wanted:
            return self._matrix_of[x.id]
        part = "" if wanted == self.shape else "reshape"
        try:
            return self.graph.add_view(ViewKind.RESHAPE, x, shape=wanted, name=self.label(part))
        except InvalidInput as error:
            # Of a strided tensor with a symbolic extent, nothing says which strides a reshape would have.
            if not isinstance(error, InvalidStride) and (x.type.is_static or x.type.is_contiguous):
                raise
            return self.graph.add_view(ViewKind.RESHAPE, self.copy(x), shape=wanted, name=self.label(part))

    def permute(self, x: Node, axes: Sequence[int]) -> Node:
        """Append a transpose: axis i of the result is axis ``axes[i]`` of x."""
        wanted = tuple(axis % x.type.rank for axis in axes)
        if wanted == tuple(range(x.type.rank)):
            return x
        return self.graph.add_view(ViewKind.PERMUTE, x, axes=wanted, name=self.label("permute"))

    def transpose(self, x: Node, first: int = -2, second: int = -1) -> Node:
        """Append a swap of two axes."""
        if x.type.rank < 2:
            return x
        axes = list(range(x.type.rank))
        axes[first], axes[second] = axes[second], axes[first]
        return self.permute(x, axes)

    def expand(self, x: Node, shape: Sequence[Dim]) -> Node:
        """Append a broadcast by strides of 0."""
        wanted = tuple(shape)
        if x.type.shape == wanted:
            return x
        return self.graph.add_view(ViewKind.EXPAND, x, shape=wanted, name=self.label("expand"))

    def slice(self, x: Node, axis: int, start: int, size: Dim, step: int = 1) -> Node:
        """Append elements ``start, start + step, ...`` of one axis."""
        if size == x.type.shape[axis] and start == 0 and step == 1:
            return x
        starts, steps, shape = [0] * x.type.rank, [1] * x.type.rank, list(x.type.shape)
        starts[axis], steps[axis], shape[axis] = start, step, size
        return self.graph.add_view(ViewKind.SLICE, x, shape=shape, starts=starts, steps=steps, name=self.label("slice"))

    def windows(self, x: Node, axis: int, size: int, step: int) -> Node:
        """Append windows of ``size`` elements of one axis, each ``step`` behind the last; their axis is the last."""
        label = self.label("windows")
        return self.graph.add_view(ViewKind.WINDOWS, x, axes=(axis,), shape=(size,), steps=(step,), name=label)

    # Matrices.

    def as_matrix(self, x: Node) -> Node | None:
        """Return x as (rows, columns), its leading axes collapsed; None where that is no view, or rows is symbolic."""
        if x.id in self._matrix_of:
            return self._matrix_of[x.id]
        if x.type.rank <= 2:
            return x if x.type.rank == 2 else None
        if not x.type.is_static:
            return None
        shape = (math.prod(x.type.static_shape[:-1]), x.type.shape[-1])
        try:
            matrix = self.graph.add_view(ViewKind.RESHAPE, x, shape=shape, name=self.label(f"{x.id}.rows"))
        except InvalidInput:
            return None
        self._matrix_of[x.id] = matrix
        return matrix

    def from_matrix(self, matrix: Node, shape: Sequence[Dim]) -> Node:
        """Return a matrix as a tensor of more axes, and remember where it came from."""
        if matrix.type.shape == tuple(shape):
            return matrix
        part = "shape" if tuple(shape) == self.shape else "reshape"
        tensor = self.graph.add_view(ViewKind.RESHAPE, matrix, shape=tuple(shape), name=self.label(part))
        self._matrix_of[tensor.id] = matrix
        return tensor

    def gemm(self, a: Node, b: Node, *, epilogue: Expr | None = None, extras: Sequence[Node] = ()) -> Node:
        """Append ``a @ b``, batch axes broadcast; ``Input(0)`` of the epilogue is the product, then the extras."""
        if not a.type.dtype.is_float:
            self.refuse(f"a product of {a.type.dtype.value}", "multiply floats")
        if a.type.dtype is not b.type.dtype:
            what = f"a product of {a.type.dtype.value} and {b.type.dtype.value}"
            if not torch.is_autocast_enabled("cpu"):
                self.refuse(what, "convert one of the two")
            self.refuse(
                f"{what}, which torch.autocast would convert",
                "optimize outside of torch.autocast, and convert the module and its inputs themselves where they are "
                "to be narrower: module.bfloat16()",
            )
        batch = broadcast_shapes((a.type.shape[:-2], b.type.shape[:-2]), field="matmul")
        m, k, n = a.type.shape[-2], a.type.shape[-1], b.type.shape[-1]
        op = GemmOp(
            m=m,
            n=n,
            k=k,
            batch=batch,
            a=a.type,
            b=b.type,
            epilogue=Epilogue(Input(0) if epilogue is None else epilogue, _types(extras)),
            out=TensorType((*batch, m, n), self.dtype),
        )
        return self.add(op, [a, b, *extras])

    def row(
        self, kind: RowKind, x: Node, *, epilogue: Expr | None = None, extras: Sequence[Node] = (), eps: float = 0.0
    ) -> Node:
        """Append a normalisation along the last axis; the extras are rows."""
        matrix = (self.as_matrix(x) if all(extra.type.rank <= 1 for extra in extras) else None) or x
        op = RowOp(
            kind=kind,
            x=(matrix.type,),
            epilogue=Epilogue(Input(0) if epilogue is None else epilogue, _types(extras)),
            eps=eps,
            out=TensorType(matrix.type.shape, self.dtype),
        )
        return self.from_matrix(self.add(op, [matrix, *extras]), x.type.shape)

    def reduce(self, kind: ReduceKind, x: Node, axes: Sequence[int], *, keepdims: bool) -> Node:
        """Append a reduction."""
        if not (x.type.dtype.is_float and self.dtype.is_float):
            self.refuse(f"a reduction of {x.type.dtype.value} to {self.dtype.value}", "reduce floats")
        op = ReduceOp(kind=kind, x=(x.type,), axes=tuple(axes), keepdims=keepdims)
        if op.infer().dtype is not self.dtype:
            op = ReduceOp(kind=kind, x=(x.type,), axes=op.axes, keepdims=keepdims, out=TensorType(op.shape, self.dtype))
        return self.add(op, [x])

    def add(self, op: GemmOp | RowOp | ReduceOp | PointwiseOp, inputs: Sequence[Node], *, part: str = "") -> Node:
        """Append an op under the captured node's name."""
        return self.graph.add(op, inputs, name=self.label(part))


def _types(nodes: Sequence[Node]) -> tuple[TensorType, ...]:
    return tuple(node.type for node in nodes)
