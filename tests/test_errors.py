from __future__ import annotations

import dataclasses
import inspect
import json
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

from tracea import errors
from tracea.errors import CacheCorrupt, CacheUnwritable, InvalidDType, InvalidOp, ResourceExceeded, TraceaError

CLASSES = [
    cls for name in errors.__all__ if issubclass(cls := getattr(errors, name), TraceaError) and cls is not TraceaError
]
SAMPLE: dict[str, Any] = {
    "needed_bytes": 131_072,
    "limit_bytes": 101_376,
    "spent": 31.0,
    "limit": 30.0,
    "command": ("g++", "-O3", "kernel.cpp"),
    "searched": ("g++", "clang++"),
    "exit_code": 4,
}


def sample(cls: type[TraceaError]) -> TraceaError:
    required = [
        field.name
        for field in dataclasses.fields(cls)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    return cls(**{name: SAMPLE.get(name, f"<{name}>") for name in required})


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_says_its_fields_and_a_remedy(cls: type[TraceaError]) -> None:
    error = sample(cls)
    text = str(error)
    assert not text.startswith(cls.__name__)  # a traceback says the class
    assert text.endswith(f". Remedy: {error.remedy}")
    for field in dataclasses.fields(cls):
        if field.default is dataclasses.MISSING and isinstance(value := getattr(error, field.name), str):
            assert value in text


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_crosses_a_process_and_becomes_json(cls: type[TraceaError]) -> None:
    error = sample(cls)
    error.add_note("while compiling")
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is cls
    assert back.to_dict() == error.to_dict()
    assert back.__notes__ == ["while compiling"]
    assert json.loads(json.dumps(error.to_dict()))["error"] == cls.__name__


def test_tree_in_the_docstring_names_every_error_under_its_builtin() -> None:
    tree = {line.strip(" │├└─").split(" ")[0]: line for line in (errors.__doc__ or "").splitlines()}
    assert set(errors.__all__) <= set(tree)
    builtin = (ValueError, TypeError, RuntimeError, MemoryError, OSError, NotImplementedError, UserWarning)
    for name in errors.__all__:
        shown = tree[name]
        for base in builtin:
            if f"({base.__name__})" in shown or f", {base.__name__})" in shown:
                assert issubclass(getattr(errors, name), base)


def test_all_lists_every_class_of_the_module() -> None:
    defined = {
        name for name, value in vars(errors).items() if inspect.isclass(value) and value.__module__ == errors.__name__
    }
    assert defined == set(errors.__all__)


@pytest.mark.parametrize(
    ("cls", "builtin"), [(InvalidOp, ValueError), (InvalidDType, TypeError), (CacheCorrupt, OSError)]
)
def test_errors_are_caught_as_their_builtin(cls: type[TraceaError], builtin: type[Exception]) -> None:
    with pytest.raises(builtin):
        raise sample(cls)


def test_cache_errors_can_be_warned() -> None:
    error = CacheUnwritable(path="/read-only", detail="mode 0555, needs 0700")
    with pytest.warns(errors.TraceaWarning, match="0555"):
        warnings.warn(error, stacklevel=1)


def test_message_has_the_numbers_first_then_the_remedy() -> None:
    error = ResourceExceeded(what="shared memory", needed_bytes=131_072, limit_bytes=101_376, remedy="stages=2")
    assert str(error) == ("shared memory: got 131_072 bytes, limit 101_376 bytes. Remedy: stages=2")


@pytest.mark.parametrize(
    ("got", "kept"),
    [
        (np.int64(7), 7),
        (np.float32(0.5), 0.5),
        (True, True),
        ((1, (2, np.int8(3))), (1, (2, 3))),
        ({"m": np.int32(4)}, {"m": 4}),
        (float, "float"),
    ],
)
def test_values_are_kept_as_plain_data(got: object, kept: object) -> None:
    error = InvalidOp(field="m", got=got, remedy="r")
    assert error.got == kept
    assert type(error.got) is type(kept)


@pytest.mark.parametrize("hostile", ["x" * 10_000_000, "\x1b[2Jrelu\n" * 1000, "%s{0}{field}", "\udcff"])
def test_hostile_text_stays_short_and_printable(hostile: str) -> None:
    text = str(InvalidOp(field="activation", got=hostile, remedy="name a known activation"))
    assert len(text) < 2000
    assert text.isprintable()


def test_an_error_keeps_no_array_alive() -> None:
    array = np.zeros(10_000)
    error = InvalidOp(field="a", got=array, remedy="r")
    assert isinstance(error.got, str)


def test_containers_are_bounded_in_width_and_depth() -> None:
    nested: list[Any] = []
    nested.append(nested)
    assert len(str(InvalidOp(field="a", got=[list(range(10_000)), nested], remedy="r"))) < 2000


def test_a_long_list_says_how_many_there_are() -> None:
    error = InvalidOp(field="a", got=3, expected=list(range(65)), remedy="r")
    assert error.expected[-1] == "… (65 in all)"
    assert len(error.expected) == 33
    assert pickle.loads(pickle.dumps(error)).expected == error.expected


def test_a_long_command_is_shortened_in_the_message_and_kept_whole_as_a_field() -> None:
    command = ("g++", *(f"-mflag-number-{number}" for number in range(50)), "/somewhere/source.cpp")
    error = errors.CompileError(command=command, log="stopped after 300 s", exit_code=-9)
    assert error.statement() == "g++ … /somewhere/source.cpp (52 words): exit code -9: stopped after 300 s"
    assert error.to_dict()["command"] == command
    short = errors.CompileError(command=("g++", "x.cpp"), log="", exit_code=1)
    assert "g++ x.cpp: exit code 1" in str(short)
