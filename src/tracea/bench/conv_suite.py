"""The convolutions that are timed: every distinct layer of ResNet-50 and MobileNetV2, and shapes that are awkward."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from tracea.bench.problem import Problem
from tracea.core.contract import Accuracy
from tracea.core.op import Conv2dOp
from tracea.core.tensor_type import static

__all__ = ["conv_by_norm_problems", "conv_problem", "conv_problems"]

# ResNet-50: width of a stage, blocks, stride of its first block, rows of its input.
_STAGES: Final = ((64, 3, 1, 56), (128, 4, 2, 56), (256, 6, 2, 28), (512, 3, 2, 14))
# MobileNetV2: expansion, channels of the result, blocks, stride of the first.
_MOBILE: Final = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
# Layers that are timed with eight images too: channels, filters, taps, stride, rows.
_BATCHED: Final = (
    (3, 64, 7, 2, 224),
    (64, 64, 3, 1, 56),
    (256, 64, 1, 1, 56),
    (128, 128, 3, 2, 56),
    (256, 256, 3, 1, 14),
    (512, 512, 3, 1, 7),
)


def conv_problem(
    channels: int,
    filters: int,
    taps: int,
    stride: int,
    size: int,
    *,
    groups: int = 1,
    dilation: int = 1,
    batch: int = 1,
    group: str = "",
    activation: str | None = "relu",
) -> Problem:
    """A convolution with bias and constant filters, an image of the size that keeps ``size // stride`` rows.

    Ours takes its images channels last or in rows, as the peers do; one with a channel a group always channels last.
    """
    depthwise = groups > 1 and groups == channels == filters
    kind = group or ("depthwise" if depthwise else "1x1" if taps == 1 else "3x3" if taps == 3 else f"{taps}x{taps}")
    op_in = partial(
        Conv2dOp.of,
        batch=batch,
        channels=channels,
        size=(size, size),
        filters=filters,
        kernel=(taps, taps),
        stride=(stride, stride),
        padding=(dilation * (taps // 2), dilation * (taps // 2)),
        dilation=(dilation, dilation),
        groups=groups,
        bias=True,
        activation=activation,
    )
    parts = [f"{channels}-{filters} {taps}x{taps}"]
    parts += [f"/{stride}"] if stride > 1 else []
    parts += [f"@{size}"]
    parts += [" depthwise"] if depthwise else [f" groups {groups}"] if groups > 1 else []
    parts += [f" dilation {dilation}"] if dilation > 1 else []
    parts += [f" x{batch}"] if batch > 1 else []
    last, rows = (op_in(channels_last=order) for order in (True, False))
    return Problem(name="".join(parts), group=kind, op=last, constant=(1,), other=None if depthwise else rows)


def conv_problems() -> tuple[Problem, ...]:
    """Return the suite, each problem once."""
    found = (
        *_resnet50(),
        *_mobilenet_v2(),
        *(conv_problem(*layer, batch=8, group="batch 8") for layer in _BATCHED),
        conv_problem(64, 128, 3, 1, 224),
        conv_problem(3, 64, 3, 1, 224, group="3 channels"),
        conv_problem(31, 37, 3, 1, 56, group="odd"),
        conv_problem(37, 31, 3, 1, 56, group="odd"),
        conv_problem(17, 19, 5, 1, 56, group="odd"),
        conv_problem(64, 64, 3, 1, 56, dilation=2, group="dilated"),
        conv_problem(128, 128, 3, 1, 28, groups=4, group="grouped"),
    )
    return tuple({problem.name: problem for problem in found}.values())


def conv_by_norm_problems() -> tuple[Problem, ...]:
    """Return the convolutions of the suite that may take fewer products, accurate by norm instead of by element."""
    found = (problem for problem in conv_problems() if isinstance(problem.op, Conv2dOp) and _takes_fewer(problem.op))
    return tuple(replace(problem, op=replace(problem.op, accuracy=Accuracy.NORMWISE), other=None) for problem in found)


def _takes_fewer(op: Conv2dOp) -> bool:
    return op.takes_fewer_products and static(op.w.shape[1]) > 3


def _resnet50() -> list[Problem]:
    found = [conv_problem(3, 64, 7, 2, 224, group="3 channels")]
    channels = 64
    for width, count, first, rows in _STAGES:
        size = rows
        for index in range(count):
            stride = first if index == 0 else 1
            found.append(conv_problem(channels, width, 1, 1, size))
            found.append(conv_problem(width, width, 3, stride, size))
            if index == 0:
                found.append(conv_problem(channels, 4 * width, 1, stride, size))
            size //= stride
            found.append(conv_problem(width, 4 * width, 1, 1, size))
            channels = 4 * width
    return found


def _mobilenet_v2() -> list[Problem]:
    found = [conv_problem(3, 32, 3, 2, 224, group="3 channels")]
    channels, size = 32, 112
    for expansion, out, count, first in _MOBILE:
        for index in range(count):
            stride, wide = first if index == 0 else 1, channels * expansion
            if expansion > 1:
                found.append(conv_problem(channels, wide, 1, 1, size))
            found.append(conv_problem(wide, wide, 3, stride, size, groups=wide))
            size //= stride
            found.append(conv_problem(wide, out, 1, 1, size))
            channels = out
    return [*found, conv_problem(channels, 1280, 1, 1, size)]
