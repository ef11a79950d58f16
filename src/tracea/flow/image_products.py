"""The gradient of a 1x1 convolution with respect to its image, as one matrix product.

``gradient[pixel, c] = sum over k of grad[pixel, k] · w[k, c]``: the pixels of all images are one axis. A convolution of
one tap gives the same; where filters are more than channels, sums are longer than what they give, and a product of the
same matrices packs less.
"""

from __future__ import annotations

from tracea.core.op import GemmOp
from tracea.flow.filter_products import pixels_step
from tracea.flow.sections import Part, Section, part_type
from tracea.flow.transposed import Transposed

__all__ = ["image_product"]


def image_product(whole: Transposed) -> Section | None:
    """Return the gradient for the image as a product; None where it is none, or a convolution is faster.

    Measured, benchmarks/NOTES.md: with more filters than channels the product took 0.54 to 1.09 of the convolution's
    time, with fewer 0.95 to 1.11.
    """
    n, k, p, q = whole.x.static_shape
    c = whole.y.static_shape[1]
    is_plain = whole.w.static_shape[2:] == (1, 1) and whole.stride == (1, 1) and whole.padding == (0, 0)
    is_bare = whole.bias is None and whole.total is None and whole.activation is None
    from_step, to_step = pixels_step(whole.x), pixels_step(whole.y)
    if not is_plain or not is_bare or whole.groups != 1 or k <= c or from_step is None or to_step is None:
        return None
    if not whole.x.elements * whole.y.elements:
        return None
    pixels = n * p * q
    w_filter, w_channel = whole.w.strides[:2]
    x_channel, y_channel = whole.x.strides[1], whole.y.strides[1]
    if y_channel == 1 and c > 1:  # columns of the product are what lies next to each other in the result
        op = GemmOp(
            m=pixels,
            n=c,
            k=k,
            a=part_type(whole.x, (pixels, k), (from_step, x_channel)),
            b=part_type(whole.w, (k, c), (w_filter, w_channel)),
            out=part_type(whole.y, (pixels, c), (to_step, y_channel)),
        )
        return Section(op=op, operands=(Part(0), Part(1)))
    op = GemmOp(
        m=c,
        n=pixels,
        k=k,
        a=part_type(whole.w, (c, k), (w_channel, w_filter)),
        b=part_type(whole.x, (k, pixels), (x_channel, from_step)),
        out=part_type(whole.y, (c, pixels), (y_channel, to_step)),
    )
    return Section(op=op, operands=(Part(1), Part(0)))
