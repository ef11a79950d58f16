"""Which planes of a volume and of its filters make which planes of a result, and how these are cut into batches.

Worked example, three taps, padding 1, stride 1, four planes: plane 0 of the result sums taps (1, 2), planes 1 and 2 all
three, plane 3 taps (0, 1). Each such run of planes is a sum of convolutions of images, whose batch are its planes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from tracea.flow.transposed import Phase

__all__ = ["Batch", "Run", "batches", "forward_runs", "transposed_runs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Planes of a result that sum the same taps: planes ``first``, ``first + step``, …, ``count`` of them.

    Plane i of them sums tap t of the filters over plane ``source + i·advance`` of the volume, for each (t, source) of
    ``taps``; none of these: no filter reaches these planes.
    """

    first: int
    count: int
    taps: tuple[tuple[int, int], ...]
    step: int = 1
    advance: int = 1


def forward_runs(*, depth: int, taps: int, stride: int, padding: int, dilation: int, planes: int) -> tuple[Run, ...]:
    """Return the runs of a convolution along one axis, in order: together they hold each of ``planes`` planes once."""
    # Tap t reaches planes first[t] to last[t]; runs begin where one of these sets begins or has ended.
    first = [max(0, -((tap * dilation - padding) // stride)) for tap in range(taps)]
    last = [(depth - 1 + padding - tap * dilation) // stride for tap in range(taps)]
    met = [tap for tap in range(taps) if first[tap] <= last[tap] and first[tap] < planes and last[tap] >= 0]
    edges = {0, planes} | {first[tap] for tap in met} | {min(planes, last[tap] + 1) for tap in met}
    bounds = sorted(edges)
    return tuple(
        Run(
            first=begin,
            count=end - begin,
            taps=tuple(
                (tap, begin * stride + tap * dilation - padding) for tap in met if first[tap] <= begin <= last[tap]
            ),
            advance=stride,
        )
        for begin, end in pairwise(bounds)
    )


def transposed_runs(*, depth: int, taps: int, stride: int, padding: int, dilation: int, planes: int) -> tuple[Run, ...]:
    """Return the runs of a transposed convolution along one axis: those of each phase, a convolution of stride 1."""
    made: list[Run] = []
    for phase in Phase.all(image=depth, result=planes, taps=taps, stride=stride, padding=padding, dilation=dilation):
        if not phase.taps:
            made.append(Run(first=phase.first, count=phase.count, taps=(), step=stride))
            continue
        for run in forward_runs(
            depth=depth - phase.start,
            taps=phase.taps,
            stride=1,
            padding=phase.before,
            dilation=phase.dilation,
            planes=phase.count,
        ):
            turned = tuple(
                (phase.tap + (phase.taps - 1 - tap) * phase.tap_step, source + phase.start) for tap, source in run.taps
            )
            made.append(Run(first=phase.first + run.first * stride, count=run.count, taps=turned, step=stride))
    return tuple(made)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Part of a run as one batch: the planes of image ``image``, or the one plane of ``images`` images from it on."""

    run: Run
    image: int
    images: int

    @property
    def count(self) -> int:
        """Images of the batch."""
        return self.run.count * self.images


def batches(run: Run, images: int, most: int) -> Iterator[Batch]:
    """Yield the batches of a run over all images, of at most ``most`` planes each, along the longer of the two axes."""
    if run.count >= images:
        for first, count in _pieces(run.count, most):
            part = replace(
                run,
                first=run.first + first * run.step,
                count=count,
                taps=tuple((tap, source + first * run.advance) for tap, source in run.taps),
            )
            for image in range(images):
                yield Batch(run=part, image=image, images=1)
        return
    for plane in range(run.count):
        part = replace(
            run,
            first=run.first + plane * run.step,
            count=1,
            taps=tuple((tap, source + plane * run.advance) for tap, source in run.taps),
        )
        for first, count in _pieces(images, most):
            yield Batch(run=part, image=first, images=count)


def _pieces(count: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield (first, length) of pieces as even as whole numbers are: at most two lengths, so that few kernels serve."""
    number = -(-count // most)
    first = 0
    for index in range(number):
        length = count // number + (index < count % number)
        yield first, length
        first += length
