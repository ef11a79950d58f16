from __future__ import annotations

import os
import shutil
import zipfile

import ml_dtypes
import numpy as np
import pytest

from tracea.core.dtype import DType
from tracea.errors import InvalidOption, ToolchainMissing
from tracea.runtime.library import LibraryCall, LibraryFunction
from tracea.runtime.program import Call, InputSlot, OutputSlot, Program


@pytest.fixture
def program(kit, rng):
    constant = rng.standard_normal(kit.N, dtype=np.float32)
    calls = (*kit.sixfold().calls, kit.scale_call(kit.ConstantSlot(0), OutputSlot(1), 0.5))
    return Program(
        calls=calls,
        inputs=(kit.vector(),),
        outputs=(kit.vector(), kit.vector()),
        constants=(constant, np.ones((2, 3), ml_dtypes.bfloat16)),
        arena_bytes=4 * kit.N,
        name="both",
    )


def test_a_saved_program_does_the_same(kit, program, tmp_path, rng):
    path = tmp_path / "program.tracea"
    program.save(path)
    loaded = Program.load(path)
    x = rng.standard_normal(kit.N, dtype=np.float32)
    for mine, its in zip(program.run(x), loaded.run(x), strict=True):
        np.testing.assert_array_equal(mine, its)
    assert loaded.name == "both"
    assert [call.kernel.source for call in loaded.calls] == [call.kernel.source for call in program.calls]
    assert loaded.constants[1].dtype == DType.BF16.numpy
    assert loaded.constants[0].__array_interface__["data"][0] % 64 == 0
    loaded.save(tmp_path / "again")
    assert path.read_bytes() == (tmp_path / "again").read_bytes()


def test_a_program_whose_libraries_were_collected_is_saved(program, tmp_path, kit):
    for call in program.calls:
        shutil.rmtree(call.kernel.library.path.parent, ignore_errors=True)
    program.save(tmp_path / "program.tracea")
    x = np.ones(kit.N, np.float32)
    for mine, its in zip(program.run(x), Program.load(tmp_path / "program.tracea").run(x), strict=True):
        np.testing.assert_array_equal(mine, its)


def test_big_constants_come_back_on_a_huge_page_boundary(kit, tmp_path):
    constant = np.arange(3 << 20, dtype=np.uint8)
    Program(calls=(), inputs=(), outputs=(), constants=(constant,)).save(tmp_path / "big")
    loaded = Program.load(tmp_path / "big").constants[0]
    np.testing.assert_array_equal(loaded, constant)
    assert loaded.__array_interface__["data"][0] % (2 << 20) == 0


def test_library_calls_are_saved(tmp_path, kit):
    from tracea.core.tensor_type import TensorType

    matrix = TensorType((2, 2), DType.F32)
    port = LibraryCall(function=LibraryFunction.MM, operands=(matrix, matrix, matrix))
    call = Call(kernel=port, pointers=(OutputSlot(0), InputSlot(0), InputSlot(1)))
    program = Program(calls=(call,), inputs=(matrix, matrix), outputs=(matrix,))
    program.save(tmp_path / "mm")
    assert Program.load(tmp_path / "mm").calls == program.calls


def test_a_damaged_file_is_named_and_never_run(program, tmp_path):
    path = tmp_path / "program.tracea"
    program.save(path)
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        places = [archive.getinfo(name).header_offset + 60 for name in archive.namelist()]
    for broken in (b"", whole[: len(whole) // 2], b"not a zip" * 100):
        path.write_bytes(broken)
        with pytest.raises(InvalidOption, match=r"program\.tracea"):
            Program.load(path)
    for place in places:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(InvalidOption):
            Program.load(path)


def test_a_flipped_bit_of_the_archives_own_words_is_named_or_changes_nothing(program, tmp_path, rng):
    path = tmp_path / "program.tracea"
    program.save(path)
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        starts = [archive.getinfo(name).header_offset for name in archive.namelist()]
    headers = [start + at for start in starts for at in range(30)]
    directory = range(whole.index(b"PK\x01\x02"), len(whole))
    for place in rng.permutation([*headers, *directory])[:200].tolist():
        bit = 1 << int(rng.integers(8))
        path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
        try:
            Program.load(path)
        except InvalidOption as error:
            assert "program.tracea" in str(error)  # noqa: PT017 - some flips, of dates, change nothing


def test_a_changed_kernel_does_not_pass_its_checksum(program, tmp_path):
    path = tmp_path / "program.tracea"
    program.save(path)
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    victim = next(name for name in content if name.endswith(".cpp"))
    content[victim] = content[victim].replace(b"a * x[i]", b"a + x[i]")
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    with pytest.raises(InvalidOption, match="checksum"):
        Program.load(path)


def test_saving_is_all_or_nothing(program, tmp_path, monkeypatch):
    path = tmp_path / "program.tracea"
    path.write_bytes(b"the old one")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        program.save(path)
    assert path.read_bytes() == b"the old one"
    assert list(tmp_path.iterdir()) == [path]


def test_a_path_that_cannot_be_written_is_named_itself(program, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "directory").mkdir()
    for path in (tmp_path / "none" / "x.tracea", tmp_path / "file" / "x.tracea", tmp_path / "directory"):
        with pytest.raises(InvalidOption, match=f"path: got {path}, expected a file in a directory that exists"):
            program.save(path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["directory", "file"]


@pytest.mark.parametrize("name", [".", "..", "sub/..", "/", "pipe", "x" * 256])
def test_what_is_no_place_for_a_file_is_refused_and_stays(program, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidOption, match=r"path: got .*, expected a file in a directory that exists"):
        program.save(name)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["pipe", "sub"]
    assert (tmp_path / "pipe").is_fifo()


def test_the_longest_legal_name_is_one(program, tmp_path):
    path = tmp_path / ("x" * 255)
    program.save(path)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert Program.load(path).name == "both"


def test_without_a_compiler_the_library_in_the_file_serves(program, kit, tmp_path, monkeypatch):
    from tracea.runtime import storage

    path = tmp_path / "program.tracea"
    program.save(path)

    def missing(*_, **__):
        raise ToolchainMissing(tool="C++ compiler")

    monkeypatch.setattr(storage, "build_library", missing)
    x = np.ones(kit.N, np.float32)
    np.testing.assert_array_equal(Program.load(path).run(x)[0], x * 6)
    monkeypatch.setattr(storage.platform, "machine", lambda: "riscv64")
    with pytest.raises(ToolchainMissing):
        Program.load(path)
