"""A pass that makes one attention of its parts: softmax(score(q kᵀ)) v, written as two products and a softmax.

Between the products may stand one pointwise op (scale, mask, bias, soft-cap), reshapes that merge leading axes, and
conversions. Keys and values whose heads were repeated for groups of queries are read as they were before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tracea.core.dtype import DType
from tracea.core.expr import Cast, Expr, Input
from tracea.core.graph import Graph, Node
from tracea.core.op import AttentionOp, Epilogue, GemmOp, MatrixMath, PointwiseOp, RowKind, RowOp, ViewKind, ViewOp
from tracea.core.passes.draft import Draft
from tracea.core.passes.masks import hides_every_key, known_operands, scale_apart, without_mask
from tracea.core.tensor_type import Dim, TensorType
from tracea.errors import InvalidInput

__all__ = ["FuseAttention"]

_AXES = 4  # (batch, heads, tokens, size)
_MOST_OPERANDS = 4
# What attention is for, and its kernels take: larger heads, or more of them, stay products.
_MOST_SIZE = 256
_MOST_HEADS = 4096
_MOST_SHARING = 1024  # of a head of keys
_MOST_BATCH = 65536
_SWAPPED = {2: (1, 0), 3: (0, 2, 1), 4: (0, 1, 3, 2)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FuseAttention:
    """Make an :class:`AttentionOp` of two products around a softmax that nothing else reads.

    A mask that is a known constant and hides what ``causal`` hides becomes ``causal``; ``values`` gives the data of
    constants by id, as far as they are known. A query whose keys are all hidden by -inf gives zeros, where the softmax
    alone gives NaN: parts with a known mask that does so stay as they are.
    """

    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    name: str = "fuse attention"

    def apply(self, graph: Graph) -> Graph:
        """Return the graph with attentions."""
        draft = Draft(graph)
        for name in draft.order():
            node = draft.nodes.get(name)
            if node is not None and isinstance(node.op, GemmOp):
                _fuse(draft, node, self.values)
            elif node is not None and isinstance(node.op, AttentionOp):
                draft.put(_without_known_mask(draft, node, node.op, self.values))
        return draft.finish()


@dataclass(frozen=True, slots=True)
class _Viewed:
    """A value of the draft under views that are not yet in it."""

    name: str
    source: TensorType
    views: tuple[ViewOp, ...] = ()

    @property
    def type(self) -> TensorType:
        return self.views[-1].infer() if self.views else self.source

    def reshaped(self, shape: tuple[Dim, ...]) -> _Viewed:
        return (
            self if shape == self.type.shape else self._under(ViewOp(kind=ViewKind.RESHAPE, x=self.type, shape=shape))
        )

    def expanded(self, shape: tuple[Dim, ...]) -> _Viewed:
        return self if shape == self.type.shape else self._under(ViewOp(kind=ViewKind.EXPAND, x=self.type, shape=shape))

    def swapped(self) -> _Viewed:
        return self._under(ViewOp(kind=ViewKind.PERMUTE, x=self.type, axes=_SWAPPED[self.type.rank]))

    def _under(self, view: ViewOp) -> _Viewed:
        return _Viewed(self.name, self.source, (*self.views, view))

    def put(self, draft: Draft, label: str) -> str:
        """Add the views and return the last one's id."""
        name = self.name
        for view in self.views:
            made = draft.fresh(label)
            draft.put(Node(id=made, op=view, inputs=(name,)))
            name = made
        return name


@dataclass(frozen=True, slots=True)
class _Scores:
    """The scores as they were found: the product of queries and keys, what becomes of it, and its shape then.

    ``expr`` is over ``Input(0)``, the product, then ``operands``. ``inner`` are the nodes that go, users first.
    """

    product: GemmOp
    factors: tuple[str, str]
    expr: Expr
    operands: tuple[str, ...]
    lead: tuple[Dim, ...]
    inner: tuple[str, ...]


def _fuse(draft: Draft, node: Node, values: Mapping[str, Any]) -> None:
    second = node.op
    assert isinstance(second, GemmOp)
    if not _is_plain(second) or not node.type.is_contiguous or node.type.elements == 0:
        return
    scores = _scores(draft, node.inputs[0])
    if scores is None or scores.product.k == 0 or node.inputs[1] in scores.inner:  # weights times themselves
        return
    if max(len(lead) for lead in (scores.lead, scores.product.batch, second.batch)) > _AXES - 2:
        return  # heads in groups of their own axis stay products
    try:
        taken = _operands(draft, scores, second, node.inputs[1])
        op = _attention(draft, scores, taken, node.type)
    except InvalidInput:  # no strides express one of the views, or heads do not fit
        return
    if op is None:
        return
    known = known_operands(draft, scores.operands, values)
    if hides_every_key(op, known):
        return
    label = f"{node.id}.heads"
    names = tuple(each.put(draft, label) for each in taken)
    whole = node.type.shape == op.shape
    made = Node(
        id=node.id if whole else draft.fresh(label),
        op=op,
        inputs=(*names, *scores.operands),
        fused=(*scores.inner, *(node.fused if whole else ())),
    )
    made = _without_known_mask(draft, made, op, values)
    draft.put(made)
    if not whole:
        view = ViewOp(kind=ViewKind.RESHAPE, x=made.type, shape=node.type.shape)
        draft.put(Node(id=node.id, op=view, inputs=(made.id,), fused=node.fused))
    for name in scores.inner:
        draft.remove(name)


def _is_plain(op: GemmOp) -> bool:
    is_static = all(tensor.is_static for tensor in op.operands)
    return op.epilogue.is_identity and op.math is MatrixMath.IEEE and is_static


def _scores(draft: Draft, weights: str) -> _Scores | None:
    """Follow a product's left factor back through a softmax to the product of queries and keys."""
    passed: list[str] = []
    row = _source(draft, weights, passed)
    if row is None or not isinstance(row.op, RowOp) or row.op.kind is not RowKind.SOFTMAX or len(row.inputs) != 1:
        return None
    if not row.op.epilogue.is_identity:
        return None
    passed.append(row.id)
    last = _source(draft, row.inputs[0], passed)
    if last is None:
        return None
    operands: list[str] = []
    expr: Expr = Input(0)
    product: Node | None = last
    if isinstance(last.op, PointwiseOp):
        passed.append(last.id)
        main = next((name for name in dict.fromkeys(last.inputs) if _leads_to_product(draft, name, last.type)), None)
        if main is None:
            return None
        product = _source(draft, main, passed)
        expr = last.op.expr.substitute(_renumbered(last.inputs, operands, main))
    if product is None or not isinstance(product.op, GemmOp) or product.op.math is not MatrixMath.IEEE:
        return None
    extras = product.inputs[2:]
    if extras and product.type.shape != last.type.shape:
        return None  # they broadcast to another shape than the scores'
    inner = product.op.epilogue.expr.substitute({i: Input(_place(operands, n)) for i, n in enumerate(extras, start=1)})
    passed.append(product.id)
    expr = row.op.prologue.substitute({0: expr.substitute({0: inner})}).simplify()
    first, second = product.inputs[:2]
    return _Scores(product.op, (first, second), expr, tuple(operands), last.type.shape[:-2], tuple(passed))


def _source(draft: Draft, name: str, passed: list[str]) -> Node | None:
    """Follow reshapes and conversions that one node reads to what they are of; None where it is read elsewhere too."""
    while draft.has_one_user(name):
        node = draft.nodes[name]
        if not _keeps_rows(node):
            return node
        passed.append(name)
        name = node.inputs[0]
    return None


def _keeps_rows(node: Node) -> bool:
    """Whether a node's value is its input's, row by row: reshaped before the last axis, or in another float type."""
    op = node.op
    if isinstance(op, ViewOp):
        return op.kind is ViewKind.RESHAPE and bool(op.shape) and op.x.shape[-1:] == op.shape[-1:]
    if not isinstance(op, PointwiseOp) or len(op.inputs) != 1 or not op.out_dtype.is_float:
        return False
    inner = op.expr.operand if isinstance(op.expr, Cast) and op.expr.dtype.is_float else op.expr
    return inner == Input(0) and op.inputs[0].dtype.is_float and op.inputs[0].shape == op.shape


def _leads_to_product(draft: Draft, name: str, wanted: TensorType) -> bool:
    found = _source(draft, name, [])
    return found is not None and isinstance(found.op, GemmOp) and draft.nodes[name].type.shape == wanted.shape


def _renumbered(names: Sequence[str], operands: list[str], main: str) -> dict[int, Expr]:
    return {i: Input(0) if name == main else Input(_place(operands, name)) for i, name in enumerate(names)}


def _place(operands: list[str], name: str) -> int:
    if name not in operands:
        operands.append(name)
    return 1 + operands.index(name)


def _operands(draft: Draft, scores: _Scores, second: GemmOp, values: str) -> tuple[_Viewed, _Viewed, _Viewed]:
    """Return queries, keys and values with axes (batch, heads, tokens, size).

    Raises:
        InvalidInput: no view expresses one of them.
    """
    lead = (*(1 for _ in range(_AXES - 2 - len(scores.lead))), *scores.lead)
    a, b = (draft.nodes[name] for name in scores.factors)
    queries = _of_heads(_Viewed(a.id, a.type), scores.product.batch, lead)
    keys = _keys(draft, _unswapped(draft, b), scores.product.batch, lead)
    found = _keys(draft, _Viewed(values, draft.nodes[values].type), second.batch, lead)
    return queries.expanded((*lead, *queries.type.shape[-2:])), keys, found


def _unswapped(draft: Draft, node: Node) -> _Viewed:
    """Return a matrix kᵀ as k: what it is a transpose of, if it is one."""
    op = node.op
    if isinstance(op, ViewOp) and op.kind is ViewKind.PERMUTE and op.axes == _SWAPPED.get(len(op.axes)):
        return _Viewed(node.inputs[0], op.x)
    return _Viewed(node.id, node.type).swapped()


def _keys(draft: Draft, viewed: _Viewed, batch: tuple[Dim, ...], lead: tuple[Dim, ...]) -> _Viewed:
    """Return keys or values with heads of their own: before they were repeated for the queries that share them."""
    source = _before_repetition(draft, viewed, lead)
    heads = _of_heads(viewed, batch, lead) if source is None else source
    shape = heads.type.shape
    return heads.expanded((lead[0], *shape[1:])) if shape[0] == 1 else heads


def _of_heads(viewed: _Viewed, batch: tuple[Dim, ...], lead: tuple[Dim, ...]) -> _Viewed:
    shape = viewed.type.shape
    if (*(1 for _ in range(_AXES - 2 - len(batch))), *batch) == lead:
        return viewed.reshaped((*(1 for _ in range(_AXES - len(shape))), *shape))
    return viewed.expanded((*batch, *shape[-2:])).reshaped((*lead, *shape[-2:]))


def _before_repetition(draft: Draft, viewed: _Viewed, lead: tuple[Dim, ...]) -> _Viewed | None:
    """Return (batch, kv_heads, tokens, size) of what holds each head several times; None of anything else."""
    merged = draft.nodes[viewed.name]
    if viewed.views or not isinstance(merged.op, ViewOp) or merged.op.kind is not ViewKind.RESHAPE:
        return None
    spread = draft.nodes[merged.inputs[0]]
    if isinstance(spread.op, PointwiseOp):  # a copy: seldom do strides say a head several times in one axis
        if spread.op.expr != Input(0) or [x.dtype for x in spread.op.inputs] != [spread.op.out_dtype]:
            return None
        spread = draft.nodes[spread.inputs[0]]
    if not isinstance(spread.op, ViewOp) or spread.op.kind is not ViewKind.EXPAND:
        return None
    shape, before = spread.op.shape, spread.op.x.shape
    if len(shape) != _AXES + 1 or before != (*shape[:2], 1, *shape[3:]) or shape[3:] != viewed.type.shape[-2:]:
        return None
    if (shape[0], math.prod(map(int, map(str, shape[1:3])))) != lead:
        return None
    source = draft.nodes[spread.inputs[0]]
    return _Viewed(source.id, source.type).reshaped((*shape[:2], *shape[3:]))


def _attention(
    draft: Draft, scores: _Scores, taken: tuple[_Viewed, _Viewed, _Viewed], result: TensorType
) -> AttentionOp | None:
    q, k, v = (each.type for each in taken)
    types = tuple(draft.nodes[name].type for name in scores.operands)
    batch, heads = q.static_shape[:2]
    if batch > _MOST_BATCH or heads > min(_MOST_HEADS, _MOST_SHARING * k.static_shape[1]):
        return None
    if max(q.static_shape[3], v.static_shape[3]) > _MOST_SIZE:
        return None
    if any(stride < 0 for tensor in (q, k, v, *types) for stride in tensor.strides):
        return None  # a flip: products copy it
    between = (draft.nodes[name].type for name in scores.inner)  # scores of f64 are not computed between ends of f32
    floats = {tensor.dtype for tensor in (q, k, v, *types, *between, result) if tensor.dtype is not DType.BOOL}
    if not all(dtype.is_float for dtype in floats) or not q.dtype is k.dtype is v.dtype:
        return None
    if len(types) > _MOST_OPERANDS or (DType.F64 in floats and floats != {DType.F64}):
        return None
    expr, scale = scale_apart(scores.expr)
    shape = (*q.shape[:3], v.shape[3])
    out = TensorType(shape, result.dtype)
    op = AttentionOp(q=q, k=k, v=v, score=Epilogue(expr, types), out=out)
    return op if scale == op.softmax_scale else replace(op, scale=scale)


def _without_known_mask(draft: Draft, node: Node, op: AttentionOp, values: Mapping[str, Any]) -> Node:
    operands = node.inputs[3 : 3 + len(op.score.operands)]
    plain = without_mask(op, known_operands(draft, operands, values))
    if plain is None:
        return node
    return replace(node, op=plain, inputs=(*node.inputs[:3], *node.inputs[3 + len(operands) :]))
