"""The sparse suite: its rows, the zeros that every contender sees, and the two products that are the rival's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tracea.bench.peers.torch import FAMILY
from tracea.bench.sparse_suite import grouped_problem, low_rank_problem, sparse_problem
from tracea.bench.suites import problems
from tracea.core.op import BlockSparseOp
from tracea.core.reference import evaluate
from tracea.errors import InvalidOption


def test_the_suite_has_every_density_and_every_rank() -> None:
    names = [problem.name for problem in problems("sparse")]
    assert len(names) == len(set(names)) == 1 + 2 * 6 + 6 + 2
    assert names[0].endswith("dense")


@pytest.mark.parametrize("density", [0.0, 0.25, 1.0])
def test_blocks_that_are_not_listed_are_zero_for_everybody(density: float) -> None:
    problem = sparse_problem(128, 32, density)
    assert isinstance(problem.op, BlockSparseOp)
    a, b, first, line, step = problem.arrays(3)
    assert first[-1] == density * 16
    blocks = b.reshape(4, 32, 4, 32).any(axis=(1, 3))
    assert blocks.sum() == first[-1]
    assert blocks[step[: first[-1]], line[: first[-1]]].all()
    np.testing.assert_allclose(evaluate(problem.op, (a, b, first, line, step)), a.astype(np.float64) @ b, atol=1e-12)


@pytest.mark.parametrize("peer", ["torch.experts", "torch.grouped"])
def test_torch_multiplies_the_same_ragged_groups(peer: str) -> None:
    problem = grouped_problem(6, 700, 24, 32)  # a group of more rows than a part has, and a small one
    (found,) = [each for each in FAMILY.peers if each.supports(problem) and each.name == peer]
    arrays = problem.arrays(1)
    assert len(set(np.diff(arrays[2]).tolist())) > 4
    with FAMILY.surroundings(1):
        got = found.build(problem, arrays, 1).result()
    np.testing.assert_allclose(got, evaluate(problem.op, arrays), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("problem", [sparse_problem(64, 32, 0.5), low_rank_problem(20, 30, 40, 8)], ids=str)
def test_torch_multiplies_the_same_problem(problem) -> None:
    (peer,) = [peer for peer in FAMILY.peers if peer.supports(problem)]
    arrays = problem.arrays(1)
    with FAMILY.surroundings(1):
        got = peer.build(problem, arrays, 1).result()
    np.testing.assert_allclose(got, evaluate(problem.op, arrays), rtol=1e-4, atol=1e-3)
    assert torch.get_num_threads() >= 1
    assert problem.ceiling == "roofline"


def test_problems_are_named_by_parts_of_their_names_and_groups() -> None:
    assert {each.group for each in problems("sparse", "low rank|experts")} == {"low rank", "experts"}
    assert [each.name for each in problems("sparse", "dense")] == ["2048x2048x2048 dense"]
    assert problems("sparse", "2048|rank|experts") == problems("sparse")
    with pytest.raises(InvalidOption, match=r"got nonesuch, expected .*low rank"):
        problems("sparse", "rank|nonesuch")
