"""One call for each overload of images, sequences and volumes, as a user's line may make it."""

from __future__ import annotations

from typing import Any

from tests.interface.torch.cases import Call, V, X, aten, rows

IMAGES: dict[str, tuple[Call, tuple[Any, ...]]] = {
    "aten.conv2d.default": (
        lambda x, w, b: aten.conv2d.default(x, w, b, [2, 1], [1, 0], [1, 2], 2),
        (rows(2, 4, 7, 8), rows(6, 2, 3, 3), rows(6)),
    ),
    "aten.conv2d.padding": (
        lambda x, w: aten.conv2d.padding(x, w, None, [1, 1], "same", [1, 1], 1).relu(),
        (rows(2, 4, 7, 8), rows(6, 4, 3, 5)),
    ),
    "aten.max_pool2d.default": (
        lambda x: aten.max_pool2d.default(x, [3, 2], [2], [1, 0], [1, 1], True),
        (rows(2, 4, 7, 8),),
    ),
    "aten.avg_pool2d.default": (
        lambda x: aten.avg_pool2d.default(x, [3], [], [1], False, False) + 1.0,
        (rows(2, 4, 7, 8),),
    ),
    "aten.adaptive_avg_pool2d.default": (lambda x: aten.adaptive_avg_pool2d.default(x, [3, 1]), (rows(2, 4, 6, 8),)),
    "aten.adaptive_max_pool2d.default": (
        lambda x: aten.adaptive_max_pool2d.default(x, [4, 3])[0],
        (rows(2, 4, 6, 8),),
    ),
    "aten.max_pool2d_with_indices.default": (
        lambda x: aten.max_pool2d_with_indices.default(x, [3, 2], [2], [1, 0])[0],
        (rows(2, 4, 7, 8),),
    ),
    "aten.conv1d.default": (
        lambda x, w, b: aten.conv1d.default(x, w, b, [2], [1], [2], 2),
        (rows(2, 4, 9), rows(6, 2, 3), rows(6)),
    ),
    "aten.conv1d.padding": (
        lambda x, w: aten.conv1d.padding(x, w, None, [1], "same", [2], 1).relu(),
        (rows(2, 4, 9), rows(6, 4, 3)),
    ),
    "aten.conv3d.default": (
        lambda x, w, b: aten.conv3d.default(x, w, b, [2, 1, 1], [1, 0, 1], [1, 1, 2], 2),
        (rows(2, 4, 5, 4, 6), rows(6, 2, 3, 2, 3), rows(6)),
    ),
    "aten.conv3d.padding": (
        lambda x, w: aten.conv3d.padding(x, w, None, [1, 1, 1], "same", [1, 1, 1], 1).relu(),
        (rows(1, 4, 4, 5, 5), rows(6, 4, 3, 1, 3)),
    ),
    "aten.max_pool3d.default": (
        lambda x: aten.max_pool3d.default(x, [3, 2, 3], [2], [1, 0, 1], [1, 1, 1]),
        (rows(2, 4, 5, 7, 18),),
    ),
    "aten.max_pool3d_with_indices.default": (
        lambda x: aten.max_pool3d_with_indices.default(x, [3, 2, 2], [2], [1, 0, 1], [1, 1, 1], True)[0],
        (rows(2, 4, 5, 7, 6),),
    ),
    "aten.avg_pool3d.default": (
        lambda x: aten.avg_pool3d.default(x, [3, 2, 3], [2], [1, 1, 0], False, False) + 1.0,
        (rows(2, 3, 5, 6, 17),),
    ),
    "aten.adaptive_avg_pool3d.default": (
        lambda x: aten.adaptive_avg_pool3d.default(x, [2, 3, 1]),
        (rows(2, 4, 5, 6, 8),),
    ),
    "aten.adaptive_max_pool3d.default": (
        lambda x: aten.adaptive_max_pool3d.default(x, [2, 6, 5])[0],
        (rows(2, 4, 5, 6, 17),),
    ),
    "aten.conv_transpose2d.input": (
        lambda x, w, b: aten.conv_transpose2d.input(x, w, b, [2, 3], [1, 0], [1, 0], 2, [1, 2]),
        (rows(2, 4, 5, 4), rows(4, 3, 3, 2), rows(6)),
    ),
    "aten.conv_transpose1d.default": (
        lambda x, w, b: aten.conv_transpose1d.default(x, w, b, [3], [1], [1], 1, [1]).relu(),
        (rows(2, 4, 5), rows(4, 3, 4), rows(3)),
    ),
    "aten.max_pool1d.default": (lambda x: aten.max_pool1d.default(x, [3], [2], [1], [1], True), (rows(2, 4, 8),)),
    "aten.avg_pool1d.default": (lambda x: aten.avg_pool1d.default(x, [3], [], [1], True, False), (rows(2, 4, 8),)),
    "aten.adaptive_avg_pool1d.default": (lambda x: aten.adaptive_avg_pool1d.default(x, [5]), (rows(2, 4, 8),)),
    "aten.adaptive_max_pool1d.default": (lambda x: aten.adaptive_max_pool1d.default(x, [3])[0], (rows(2, 4, 8),)),
    "aten.upsample_nearest2d.vec": (
        lambda x: aten.upsample_nearest2d.vec(x, None, [2.0, 3.0]) + 1.0,
        (rows(2, 4, 3, 5),),
    ),
    "aten.upsample_nearest1d.vec": (lambda x: aten.upsample_nearest1d.vec(x, [15], None), (rows(2, 4, 5),)),
    "aten._upsample_nearest_exact2d.vec": (
        lambda x: aten._upsample_nearest_exact2d.vec(x, [7, 4], None) * 2.0,
        (rows(2, 4, 3, 5),),
    ),
    "aten._upsample_nearest_exact1d.vec": (
        lambda x: aten._upsample_nearest_exact1d.vec(x, None, [1.7]),
        (rows(2, 4, 5),),
    ),
    "aten.upsample_bilinear2d.vec": (
        lambda x: aten.upsample_bilinear2d.vec(x.relu(), None, False, [2.0, 3.0]) + 1.0,
        (rows(2, 4, 3, 5),),
    ),
    "aten.upsample_linear1d.vec": (lambda x: aten.upsample_linear1d.vec(x, [20], False, None), (rows(2, 4, 5),)),
    "aten.upsample_bicubic2d.vec": (
        lambda x: aten.upsample_bicubic2d.vec(x.relu(), None, False, [2.0, 0.7]) + 1.0,
        (rows(2, 4, 3, 5),),
    ),
    "aten._upsample_bilinear2d_aa.vec": (
        lambda x: aten._upsample_bilinear2d_aa.vec(x, [2, 3], False, None),
        (rows(2, 4, 7, 5),),
    ),
    "aten._upsample_bicubic2d_aa.vec": (
        lambda x: aten._upsample_bicubic2d_aa.vec(x, [2, 3], False, None) * 2.0,
        (rows(2, 4, 7, 5),),
    ),
    "aten.pad.default": (lambda x: aten.pad.default(x, [1, 0, 2, 3]) * 2.0, (rows(2, 3, 4, 5),)),
    "aten.constant_pad_nd.default": (
        lambda x: aten.constant_pad_nd.default(x, [2, -1, 0, 3], 0.5) * 2.0,
        (rows(2, 4, 5),),
    ),
    "aten.cat.default": (lambda x, y: aten.cat.default([x, y, x], -1), (rows(2, 3, 4), rows(2, 3, 1))),
    "aten.concat.default": (lambda x, y: aten.concat.default([x, y.relu()]) * 2.0, (rows(2, 3), rows(4, 3))),
    "aten.repeat.default": (
        lambda x, y: (aten.repeat.default(x, [2, 1, 3]), aten.repeat.default(y, [2, 2]) + 1.0),
        (X, V),
    ),
    "aten.flip.default": (
        lambda x, y: (aten.flip.default(x, [1, -1]) * 2.0, aten.flip.default(x, [0]), aten.flip.default(y, [0])),
        (rows(2, 3, 5), rows(7)),
    ),
    "aten.stack.default": (lambda x, y: aten.stack.default([x, y], 1), (rows(2, 3), rows(2, 3))),
}
