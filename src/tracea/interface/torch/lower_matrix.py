"""Lowerings of products of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracea.core.expr import Expr, Input
from tracea.core.tensor_type import broadcast_shapes

if TYPE_CHECKING:
    from tracea.core.graph import Node
    from tracea.interface.torch.lowering import Lowering

__all__ = ["addmm", "dot", "linear", "matmul"]

_SUM = Input(0) + Input(1)


def linear(low: Lowering, x: Node, weight: Node, bias: Node | None = None) -> Node:
    """Lower ``x @ weight.T + bias``; a weight is stored (columns, k) and stays so."""
    if weight.type.rank == 1:
        product = matmul(low, x, weight)
        return product if bias is None else low.pointwise(_SUM, product, bias)
    extras = () if bias is None else (bias,)
    return _rows_times(low, x, low.transpose(weight), None if bias is None else _SUM, extras)


def matmul(low: Lowering, a: Node, b: Node) -> Node:
    """Lower torch's product: vectors, matrices and broadcast batches of them."""
    if b.type.rank == 1:
        column = low.reshape(b, (*b.type.shape, 1))
        return low.reshape(_times_matrices(low, a, column), low.shape)
    return _times_matrices(low, a, b)


def _times_matrices(low: Lowering, a: Node, b: Node) -> Node:
    """Lower a product whose right side has two axes or more."""
    if b.type.rank == 2:
        return _rows_times(low, a, b)
    if a.type.rank == 1:
        product = low.gemm(low.reshape(a, (1, *a.type.shape)), b)
        return low.reshape(product, (*product.type.shape[:-2], product.type.shape[-1]))
    return low.gemm(a, b)


def dot(low: Lowering, a: Node, b: Node) -> Node:
    """Lower the product of two vectors."""
    return low.reshape(matmul(low, a, b), ())


def addmm(low: Lowering, c: Node, a: Node, b: Node, beta: float = 1, alpha: float = 1) -> Node:
    """Lower ``beta * c + alpha * (a @ b)``; with ``beta == 0`` c is not read, as in torch."""
    product: Expr = Input(0) if alpha == 1 else Input(0) * float(alpha)
    if beta == 0:
        return low.gemm(a, b, epilogue=product)
    shape = (*broadcast_shapes((a.type.shape[:-2], b.type.shape[:-2])), a.type.shape[-2], b.type.shape[-1])
    if broadcast_shapes((shape, c.type.shape)) != shape:
        low.refuse("an addend that is larger than the product", "add it after the product")
    return low.gemm(a, b, epilogue=product + (Input(1) if beta == 1 else Input(1) * float(beta)), extras=(c,))


def _rows_times(
    low: Lowering, x: Node, matrix: Node, epilogue: Expr | None = None, extras: tuple[Node, ...] = ()
) -> Node:
    columns = matrix.type.shape[-1]
    if x.type.rank == 1:
        product = low.gemm(low.reshape(x, (1, *x.type.shape)), matrix, epilogue=epilogue, extras=extras)
        return low.reshape(product, (columns,))
    rows = low.as_matrix(x) or x  # a symbolic or strided x stays a batch of matrices
    product = low.gemm(rows, matrix, epilogue=epilogue, extras=extras)
    return low.from_matrix(product, (*x.type.shape[:-1], columns))
