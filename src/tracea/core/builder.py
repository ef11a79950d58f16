"""The calls that build a graph node by node; each derives the op from the nodes that it is given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tracea.core.contract import Accuracy
from tracea.core.dtype import DType
from tracea.core.expr import Expr, Input, activation
from tracea.core.names import meant, near
from tracea.core.op import (
    AttentionOp,
    Conv2dOp,
    Epilogue,
    GemmOp,
    Op,
    PointwiseOp,
    ReduceKind,
    ReduceOp,
    RowKind,
    RowOp,
    SourceKind,
    SourceOp,
    ViewKind,
    ViewOp,
)
from tracea.core.ops.base import check_broadcasts
from tracea.core.plain_shape import plain_shape
from tracea.core.tensor_type import Dim, SymbolicDim, TensorType, broadcast_shapes
from tracea.errors import InvalidGraph, InvalidOp, InvalidShape

__all__ = ["Builder", "Node", "check_name"]

K = TypeVar("K", RowKind, ReduceKind, ViewKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One op of a graph: its id, the ids of its inputs, and the ids of the nodes that it now stands for.

    ``type`` is the result's, ``dims`` are the symbolic extents of the operands and the result.
    """

    id: str
    op: Op
    inputs: tuple[str, ...] = ()
    fused: tuple[str, ...] = ()
    # Derived once: passes and checks ask each node many times.
    type: TensorType = field(init=False, compare=False, repr=False)
    dims: tuple[SymbolicDim, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", self.op.infer())
        tensors = (*self.op.operands, self.type)
        object.__setattr__(self, "dims", tuple(dim for tensor in tensors for dim in tensor.dims))


class Builder(ABC):
    """What can be added to a graph."""

    @abstractmethod
    def add(self, op: Op, inputs: Sequence[Node | str] = (), *, name: str | None = None) -> Node:
        """Append an op and return its node."""

    def add_input(
        self, shape: TensorType | Sequence[Dim], dtype: DType = DType.F32, *, name: str | None = None
    ) -> Node:
        """Append a tensor that the caller of each run gives; its id is the name that it is bound by."""
        return self.add(SourceOp(kind=SourceKind.INPUT, type=_type_of(shape, dtype)), name=self._named(name, "input"))

    def add_constant(
        self, shape: TensorType | Sequence[Dim], dtype: DType = DType.F32, *, name: str | None = None
    ) -> Node:
        """Append a tensor that is bound once, such as a weight; its data stay outside the graph."""
        op = SourceOp(kind=SourceKind.CONSTANT, type=_type_of(shape, dtype))
        return self.add(op, name=self._named(name, "constant"))

    def add_gemm(
        self,
        a: Node | None = None,
        b: Node | None = None,
        *,
        m: Dim | None = None,
        n: Dim | None = None,
        k: Dim | None = None,
        batch: tuple[Dim, ...] = (),
        dtype: DType = DType.F32,
        transpose_a: bool = False,
        transpose_b: bool = False,
        alpha: float = 1.0,
        bias: Node | None = None,
        activation: str | None = None,
        residual: Node | None = None,
        accumulator: DType = DType.F32,
        out: TensorType | None = None,
        name: str | None = None,
    ) -> Node:
        """Append ``activation(alpha · a @ b + bias) + residual``.

        Without ``a`` or ``b``, an input of the stated m, n, k and dtype is added for it, named ``<name>.a`` or
        ``<name>.b``. ``transpose_b`` takes b as batch + (n, k), as ``torch.nn.Linear`` stores it: a view, not a copy.

        Raises:
            InvalidOp: an operand is missing and its extents were not stated.
            InvalidShape: the operands or the stated extents disagree.
        """
        _check_nodes("gemm", a=a, b=b, bias=bias, residual=residual)
        name = self._named(name, "gemm")
        a = a or self.add_input(_stated(batch, (m, "m"), (k, "k"), transpose_a), dtype, name=f"{name}.a")
        b = b or self.add_input(_stated(batch, (k, "k"), (n, "n"), transpose_b), dtype, name=f"{name}.b")
        a = self._transposed(a) if transpose_a else a
        b = self._transposed(b) if transpose_b else b
        _check_matrices(a.type, b.type, {"m": m, "n": n, "k": k})
        operands = [node for node in (bias, residual) if node is not None]
        leading = broadcast_shapes((a.type.shape[:-2], b.type.shape[:-2]), field="gemm.batch")
        for label, node in (("bias", bias), ("residual", residual)):
            if node is not None:
                check_broadcasts(f"{name}.{label}", node.type.shape, (*leading, a.type.shape[-2], b.type.shape[-1]))
        op = GemmOp(
            m=a.type.shape[-2],
            n=b.type.shape[-1],
            k=a.type.shape[-1],
            batch=leading,
            a=a.type,
            b=b.type,
            epilogue=Epilogue.of(
                alpha=alpha,
                bias=bias.type if bias else None,
                activation=activation,
                residual=residual.type if residual else None,
            ),
            accumulator=accumulator,
            out=out,
        )
        return self.add(op, (a, b, *operands), name=name)

    def add_row(
        self,
        kind: RowKind | str,
        x: Node,
        *,
        weight: Node | None = None,
        bias: Node | None = None,
        eps: float | None = None,
        name: str | None = None,
    ) -> Node:
        """Append a normalisation along the last axis, times ``weight``, plus ``bias``; ``kind`` or its name.

        ``eps`` is added inside of the norms' square root: 1e-5 (layer norm) and 1e-6 (RMS norm) if none is given.

        Raises:
            InvalidOp: there is no such kind.
        """
        kind = _kind(RowKind, kind)
        _check_nodes(kind.value, x=x, weight=weight, bias=bias)
        expr: Expr = Input(0)
        operands: list[Node] = []
        if weight is not None:
            operands.append(weight)
            expr = expr * Input(len(operands))
        if bias is not None:
            operands.append(bias)
            expr = expr + Input(len(operands))
        epilogue = Epilogue(expr, tuple(node.type for node in operands))
        op = RowOp(kind=kind, x=(x.type,), epilogue=epilogue, eps=kind.eps_or_usual(eps))
        return self.add(op, (x, *operands), name=self._named(name, kind.value))

    def add_pointwise(
        self, expr: Expr | str, *inputs: Node, out_dtype: DType | None = None, name: str | None = None
    ) -> Node:
        """Append an expression, or an activation by its name, over broadcastable inputs; the first gives the type."""
        label = expr if isinstance(expr, str) else "pointwise"
        value = activation(expr) if isinstance(expr, str) else expr
        if not isinstance(value, Expr):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOp(
                field="pointwise.expr",
                got=type(value).__name__,
                expected="an expression, or an activation's name",
                remedy="write it with Input(0), Input(1), ... of tracea.core.expr",
            )
        _check_nodes(label, **{f"inputs[{index}]": node for index, node in enumerate(inputs)}, absent=False)
        types = tuple(node.type for node in inputs)
        if not types:
            raise InvalidOp(field="pointwise.inputs", got=0, expected="at least one", remedy="give the tensors")
        op = PointwiseOp(expr=value, inputs=types, out_dtype=out_dtype or types[0].dtype)
        return self.add(op, inputs, name=self._named(name, label))

    def add_reduce(
        self, kind: ReduceKind | str, x: Node, axes: Sequence[int], *, keepdims: bool = False, name: str | None = None
    ) -> Node:
        """Append a reduction over ``axes``; ``kind`` or its name, such as ``sum``.

        Raises:
            InvalidOp: there is no such kind.
        """
        kind = _kind(ReduceKind, kind)
        _check_nodes(kind.value, absent=False, x=x)
        if isinstance(axes, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOp(field=f"{kind.value}.axes", got=axes, expected="a sequence", remedy=f"axes=({axes},)")
        op = ReduceOp(kind=kind, x=(x.type,), axes=tuple(axes), keepdims=keepdims)
        return self.add(op, (x,), name=self._named(name, kind.value))

    def add_view(
        self,
        kind: ViewKind | str,
        x: Node,
        *,
        shape: Sequence[Dim] = (),
        axes: Sequence[int] = (),
        starts: Sequence[int] = (),
        steps: Sequence[int] = (),
        name: str | None = None,
    ) -> Node:
        """Append a view; ``ViewOp`` says which fields its kind takes.

        Raises:
            InvalidStride: no strides express the reshape; copy first with ``add_pointwise("identity", x)``.
            InvalidOp: there is no such kind.
        """
        kind = _kind(ViewKind, kind)
        _check_nodes(kind.value, x=x)
        op = ViewOp(kind=kind, x=x.type, shape=tuple(shape), axes=tuple(axes), starts=tuple(starts), steps=tuple(steps))
        return self.add(op, (x,), name=self._named(name, kind.value))

    def add_conv2d(
        self,
        x: Node,
        w: Node,
        bias: Node | None = None,
        *,
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        activation: str | None = None,
        residual: Node | None = None,
        accuracy: Accuracy | str = Accuracy.ELEMENTWISE,
        out: TensorType | None = None,
        name: str | None = None,
    ) -> Node:
        """Append ``activation(x * w + bias) + residual``; ``bias`` is (k,), ``out`` the result's type if not row-major.

        ``stride``, ``padding`` and ``dilation`` are a number or (rows, columns); ``accuracy`` "normwise" allows fewer
        products, for finite images.

        Raises:
            InvalidOp, InvalidShape: the operands do not make a convolution. InvalidOption: no such accuracy.
        """
        _check_nodes("conv2d", x=x, w=w, bias=bias, residual=residual)
        name = self._named(name, "conv2d")
        operands: list[Node] = []
        if bias is not None:
            operands.append(self.add_view(ViewKind.RESHAPE, bias, shape=(*bias.type.shape, 1, 1), name=f"{name}.bias"))
        if residual is not None:
            operands.append(residual)
        op = Conv2dOp(
            x=x.type,
            w=w.type,
            stride=_both(stride),
            padding=_both(padding),
            dilation=_both(dilation),
            groups=groups,
            epilogue=Epilogue.of(
                bias=operands[0].type if bias is not None else None,
                activation=activation,
                residual=residual.type if residual is not None else None,
            ),
            accuracy=Accuracy.of(accuracy),
            out=out,
        )
        return self.add(op, (x, w, *operands), name=name)

    def add_attention(
        self,
        q: Node,
        k: Node,
        v: Node,
        *,
        causal: bool = False,
        window: int | None = None,
        scale: float | None = None,
        name: str | None = None,
    ) -> Node:
        """Append attention over (batch, heads, sequence, size)."""
        _check_nodes("attention", q=q, k=k, v=v)
        op = AttentionOp(q=q.type, k=k.type, v=v.type, causal=causal, window=window, scale=scale)
        return self.add(op, (q, k, v), name=self._named(name, "attention"))

    @abstractmethod
    def fresh(self, label: str) -> str:
        """Return an id that no node has, made from ``label``."""

    def _named(self, name: str | None, label: str) -> str:
        """Return the name that was given, or a free one made from ``label``.

        Raises:
            InvalidGraph: the name is none.
        """
        check_name(name, label)
        return name or self.fresh(label)

    def _transposed(self, x: Node) -> Node:
        axes = (*range(x.type.rank - 2), x.type.rank - 1, x.type.rank - 2)
        if x.type.rank < 2:
            raise InvalidShape(field=x.id, got=x.type.shape, expected="a matrix", remedy="give two axes or more")
        return self.add_view(ViewKind.PERMUTE, x, axes=axes, name=self.fresh(f"{x.id}.t"))


def check_name(name: object, field: str) -> None:
    """Check that what should name a node is text, or None.

    Raises:
        InvalidGraph: it is something else.
    """
    if name is not None and not isinstance(name, str):
        raise InvalidGraph(field=f"name of {field}", got=name, expected="text", remedy='name="x", or no name')


def _check_nodes(label: str, *, absent: bool = True, **nodes: object) -> None:
    """Check that operands are nodes, whose types say what is built; None is one that was not given, if ``absent``.

    Raises:
        InvalidGraph: one is something else, such as a name.
    """
    for name, node in nodes.items():
        if not isinstance(node, Node) and not (absent and node is None):
            raise InvalidGraph(
                field=f"{label}.{name}",
                got=repr(node) if isinstance(node, str) else type(node).__name__,
                expected="a node of the graph",
                remedy='give the node that add_input or another add_... returned; graph["x"] is the one of that name',
            )


def _both(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if type(value) is int else value  # pyright: ignore[reportReturnType]


def _kind(kinds: type[K], given: object) -> K:
    """Return the kind that was given, or that a name names.

    Raises:
        InvalidOp: it is none.
    """
    names = [each.value for each in kinds]
    if isinstance(given, kinds):
        return given
    if isinstance(given, str) and given in names:
        return kinds(given)
    close = near(given, names) if isinstance(given, str) else ()
    raise InvalidOp(
        field="kind",
        got=repr(given) if isinstance(given, str) else given,
        expected=names,
        remedy=f"{meant(close)}give one of these names, or {kinds.__name__}.{next(iter(kinds)).name}",
    )


def _type_of(shape: TensorType | Sequence[Dim], dtype: DType) -> TensorType:
    if isinstance(shape, TensorType):
        return shape
    if not isinstance(shape, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidShape(
            field="shape", got=shape, expected="extents, one an axis, or a TensorType", remedy="add_input((4, 8))"
        )
    return TensorType(tuple(shape), dtype)


def _stated(
    batch: tuple[Dim, ...], row: tuple[Dim | None, str], column: tuple[Dim | None, str], transposed: bool
) -> tuple[Dim, ...]:
    if row[0] is None or column[0] is None:
        missing = row[1] if row[0] is None else column[1]
        raise InvalidOp(
            field=f"gemm.{missing}", got=None, expected="an extent", remedy="give m, n, k, or both operands"
        )
    return (*batch, column[0], row[0]) if transposed else (*batch, row[0], column[0])


def _check_matrices(a: TensorType, b: TensorType, stated: dict[str, Dim | None]) -> None:
    if a.rank < 2 or b.rank < 2 or a.shape[-1] != b.shape[-2]:
        raise InvalidShape(
            field="gemm",
            got={"a": plain_shape(a.shape), "b": plain_shape(b.shape)},
            expected="a: batch + (m, k), b: batch + (k, n)",
            remedy="make the inner extents agree; transpose_b=True takes b as (n, k)",
        )
    found = {"m": a.shape[-2], "n": b.shape[-1], "k": a.shape[-1]}
    for name, dim in stated.items():
        if dim is not None and dim != found[name]:
            raise InvalidShape(
                field=f"gemm.{name}",
                got=str(dim),
                expected=str(found[name]),
                remedy="state the operands' extents or none",
            )
