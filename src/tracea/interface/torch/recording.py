"""The nodes that a module's operators leave when it runs on values without memory, told by torch's dispatcher."""

from __future__ import annotations

import contextlib
import copy
import operator
import re
import weakref
from collections.abc import Generator, Sequence
from types import CodeType
from typing import Any, Final, NoReturn, cast

import torch
from torch._ops import OpOverload
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, TensorArgument
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tracea.interface.torch.aliases import Shared, hands_on, returning
from tracea.interface.torch.constants import is_computable
from tracea.interface.torch.export import FxNode, arguments_in_order, operator_name
from tracea.interface.torch.facts import OF_MEMORY, OF_STRIDES, Watch, asked_of_torch, is_fact, name_of
from tracea.interface.torch.location import trace_of_stack
from tracea.interface.torch.made import Made, copy_of, place_of
from tracea.interface.torch.result_basis import Type, Unknown, dense, type_like
from tracea.interface.torch.result_types import GIVES_BACK, VIEWS_OF_TYPES, has_rule, result_type
from tracea.interface.torch.surroundings import Modes

__all__ = ["Recording", "Untraceable", "literal"]

_CPU: Final = torch.device("cpu")
_HOLDING: Final[tuple[Any, ...]] = (torch.Tensor, dict, list, tuple)
_LITERALS: Final = (bool, int, float, str, type(None))


class Untraceable(Exception):
    """The module does something that only torch.export follows."""


def literal(value: Any) -> ConstantArgument:
    """Return a value that is no tensor as torch names it; of kinds that a program may hold.

    Raises:
        Untraceable: it is of another kind.
    """
    if type(value) not in _LITERALS:
        raise Untraceable(f"a {type(value).__name__} among the inputs or results")
    return ConstantArgument(name="", value=value)


class _Value(torch.Tensor):
    """A tensor without memory; its attribute, of a name that no module asks for, is what computes it and for whom.

    The node is None where another value of the same memory was written to since.
    """

    __slots__ = ("_of_tracea",)  # which ``vars`` does not show
    __torch_function__ = torch._C._disabled_torch_function_impl  # pyright: ignore
    _of_tracea: tuple[FxNode | None, weakref.ref[Recording], Shared]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse: a trace sees its operators first, so this one runs in another thread, whose code may hide that."""
        for value in pytree.tree_leaves((args, kwargs)):
            recording = value._of_tracea[1]() if isinstance(value, _Value) else None
            if recording is not None:
                recording.fail(f"{func} in another thread")
        raise Untraceable(f"{func} outside the trace")


class Recording(TorchDispatchMode):
    """Has a node for every operator that is called within it; lines of the user's are looked for up to ``asked_by``."""

    def __init__(self, asked_by: CodeType, made: Made) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self._asked_by = asked_by
        self.graph: Any = torch.fx.Graph()
        self.specs: list[InputSpec] = []
        self.tensors: dict[str, torch.Tensor] = {}  # what the sources hold that are no inputs
        self._paths: dict[int, tuple[str, type]] = {}
        self._modes = Modes.now()
        # With the tensor: while it lives its id is its own. And with its place: another may have been put in its stead.
        self._sources: dict[int, tuple[FxNode, torch.Tensor, Any]] = {}
        self._made = made
        self._exact: set[FxNode] = set()  # whose strides are torch's own beyond doubt
        self._constant: dict[FxNode, Any] = {}  # what follows from the sources; None until it is computed
        self._values: list[weakref.ref[_Value]] = []
        self._failure: str | None = None
        self.watched = 0  # how many calls of torch's functions are under way, each seen as it began
        self.reached = 0  # how many operators were seen
        self.asked: set[str] = set()  # what forward asked of values, by the names of facts
        self.gradients: list[bool] = []  # which inputs ask for one
        self.strides: list[tuple[int, ...]] = []  # of the inputs

    # What a trace begins and ends with.

    @contextlib.contextmanager
    def all_of_it(self) -> Generator[None]:
        """Record what is called within a ``with`` block."""
        with asked_of_torch(self.fail), self, Watch(self):
            yield

    def hold(self, module: torch.nn.Module) -> torch.nn.Module:
        """Return a copy of the module that has values in place of its tensors."""
        held: dict[int, Any] = {}
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            held[id(tensor)] = self._value_of_source(self._source(tensor, name), tensor)
        parts: list[Any] = [*module.modules()]
        for part in parts:
            attributes = cast("dict[str, Any]", vars(part))
            kept = [each for each in attributes.values() if isinstance(each, _HOLDING)]
            for leaf in pytree.tree_leaves(kept):
                if isinstance(leaf, torch.Tensor) and id(leaf) not in held:
                    held[id(leaf)] = self._value_of_source(self.node_of(leaf), leaf)
        alone = copy.deepcopy(module, held)
        named: list[tuple[str, torch.nn.Module]] = [*cast("Any", alone).named_modules()]
        self._paths = {id(part): (name, type(part)) for name, part in named}
        return alone

    def enter(self, names: Sequence[str], inputs: tuple[Any, ...]) -> Any:
        """Return the inputs as values."""
        leaves, spec = pytree.tree_flatten(inputs)
        given: list[Any] = []
        for name, leaf in zip(names, leaves, strict=True):
            node = self.graph.placeholder(name)
            if names.count(name) == 1:
                node.name = name  # also where Python has a function of that name, which the graph would avoid
            if isinstance(leaf, torch.Tensor):
                self._check_plain(leaf)
                node.meta["val"] = type_like(leaf)
                self._exact.add(node)
                given.append(self._value(node, Shared(is_given=True), requires_grad=leaf.requires_grad))
                self.gradients.append(leaf.requires_grad)
                self.strides.append(leaf.stride())
                self.specs.append(InputSpec(InputKind.USER_INPUT, TensorArgument(node.name), None))
            else:
                given.append(leaf)
                number = ConstantArgument(name=node.name, value=literal(leaf).value)
                self.specs.append(InputSpec(InputKind.USER_INPUT, number, None))
        return pytree.tree_unflatten(given, spec)

    def check(self) -> None:
        """Check that the trace saw all that the module did.

        Raises:
            Untraceable: an operator was refused, whatever the module made of that, or a value is kept somewhere.
        """
        if self._failure is not None:
            raise Untraceable(self._failure)
        if any(value() is not None for value in self._values):
            raise Untraceable("a value is kept beyond the call")

    def node_of(self, tensor: torch.Tensor) -> FxNode:
        """Return the node of a value, or the source that a tensor with memory is."""
        if isinstance(tensor, _Value):
            node = tensor._of_tracea[0]  # pyright: ignore[reportPrivateUsage]
            return self.fail("a value whose memory was written to by another name") if node is None else node
        self._check_plain(tensor)
        place = place_of(tensor)
        if self._made.holds(tensor):
            if place not in self._made.nodes:
                # A copy: the module may keep the tensor, and write to it later.
                self._made.nodes[place] = self._source(copy_of(tensor), None, InputKind.PARAMETER)
            return self._made.nodes[place]
        known = self._sources.get(id(tensor))
        if known is not None and known[2] != place:
            self.fail("a tensor outside the module has become another")
        return self._source(tensor, None) if known is None else known[0]

    def _source(self, tensor: torch.Tensor, name: str | None, kind: InputKind = InputKind.CONSTANT_TENSOR) -> FxNode:
        self._check_plain(tensor)
        node = self.graph.placeholder(re.sub(r"\W", "_", f"p_{name}" if name else "constant"))
        node.meta["val"] = type_like(tensor)
        target = name or f"{node.name}.value"
        while not name and target in self.tensors:  # the name of a parameter, by chance
            target += "_"
        self.specs.append(InputSpec(InputKind.PARAMETER if name else kind, TensorArgument(node.name), target))
        self.tensors[target] = tensor
        self._exact.add(node)
        self._sources[id(tensor)] = (node, tensor, place_of(tensor))
        self._constant[node] = tensor
        return node

    def _check_plain(self, tensor: torch.Tensor) -> None:
        is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
        if not is_plain or tensor.device.type != "cpu" or tensor.is_neg() or tensor.is_conj():
            raise Untraceable("a tensor of a kind of its own")

    def watch(self, called: Any) -> None:
        """Check what an operator itself does not show: the modes in which it is called, and what is no operator.

        Raises:
            Untraceable: the modes are not those in which the trace began, or a tensor's memory is asked for or set.
        """
        if Modes.now() != self._modes:
            self.fail("a region with modes of its own")
        if name_of(called) in OF_MEMORY:
            self.fail(f"a use of a tensor's memory, {called}")

    def check_fact(self, called: Any, args: tuple[Any, ...]) -> None:
        """Check that a call without an operator asked only for what a call of the module itself is told.

        Raises:
            Untraceable: it asked for something else.
        """
        name, asked = name_of(called), args[0] if args else None
        if isinstance(asked, _Value) and self.node_of(asked) not in self._constant:
            self.asked.add(name)
            if name == "contiguous":  # which is the value itself, and a copy of one that lies otherwise
                _memory_of(asked).is_by_strides = True
        if name in OF_STRIDES and isinstance(asked, torch.Tensor):
            if self.node_of(asked) in self._exact:
                return
        elif is_fact(called) or (name == "_assert" and type(args[0]) is bool):
            return
        self.fail(f"a question that a trace answers in its own way, {called}")

    def fail(self, reason: str) -> NoReturn:
        """Give the trace up.

        Raises:
            Untraceable: always; the module may catch it, the trace fails nevertheless.
        """
        self._failure = reason
        raise Untraceable(reason)

    # Operators.

    def record(self, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the results of an operator as values.

        Raises:
            Untraceable, Unknown: torch.export is to be asked.
        """
        if self._failure is not None or not _is_aten(called):
            raise Untraceable(str(called))
        # In inference mode torch hands on what it is made of undivided, as torch.export has it.
        if not self.watched or torch.is_grad_enabled() or not torch.is_inference_mode_enabled():
            raise Untraceable("a region with rules of its own")
        self.reached += 1
        name = operator_name(called)
        operands = [each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        if name == "aten.lift_fresh.default":  # torch.tensor([...]), which then detaches it
            self._check_plain(args[0])
            return self._made.keep(copy_of(args[0]))
        if name == "aten.detach_.default" and (isinstance(args[0], _Value) or self._made.holds(args[0])):
            return args[0]  # whatever history it is to forget, it has none
        if not any(isinstance(each, _Value) for each in operands):
            if not (self._made.can_run(called) and all(self._made.holds(each) for each in operands)):
                raise Untraceable(f"{called} of no value, or of tensors outside the module alone")
            result = self._made.run(called, args, kwargs)
            for each in pytree.tree_leaves(result):
                self._check_plain(each)
            return result
        if called._schema.is_mutable:  # pyright: ignore[reportPrivateUsage]
            return self._write(called, args, kwargs)
        if name in GIVES_BACK and GIVES_BACK[name](*arguments_in_order(called, args, kwargs)):
            return args[0]  # ``is`` tells
        nodes, keywords = cast("Any", pytree.tree_map)(self._argument, (args, kwargs))
        node = self.graph.create_node(
            "call_function", called, tuple(nodes), keywords, _snake_case(called.overloadpacket.__name__)
        )
        if all(source in self._constant for source in node.all_input_nodes) and is_computable(called):
            self._constant[node] = None
        result = self._types(node, args, kwargs)
        node.meta["val"] = result
        if all(each in self._exact for each in node.all_input_nodes) and (
            name in VIEWS_OF_TYPES or all(_is_row_major(each.meta["val"]) for each in node.all_input_nodes)
        ):
            self._exact.add(node)
        self._locate(node)
        shared = self._shared_by(called, args)
        return self._value(node, shared) if isinstance(result, torch.Tensor) else self._items(node, result, shared)

    def _shared_by(self, called: OpOverload[..., Any], args: tuple[Any, ...]) -> Shared | None:
        """Return whose memory an operator's results may have; None where each has its own."""
        if hands_on(called):
            return _memory_of(args[0]) if isinstance(args[0], _Value) else Shared(is_given=True)
        return None if has_rule(called) else Shared(is_given=True)

    def _write(self, called: OpOverload[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Have the first argument be what is written to it."""
        written, instead = args[0], returning(called)
        if instead is None or not isinstance(written, _Value):
            raise Untraceable(f"a write in place, {called}")
        if _memory_of(written).is_given or _memory_of(written).is_by_strides:
            raise Untraceable(f"a write in place, {called}")
        before = self.node_of(written)
        node = self.node_of(self.record(instead, args, kwargs))
        was, now = before.meta["val"], node.meta["val"]
        if (was.shape, was.dtype, was.stride()) != (now.shape, now.dtype, now.stride()):
            raise Untraceable(f"a write in place of another type, {called}")
        (self._exact.add if before in self._exact else self._exact.discard)(node)
        for other in _memory_of(written).others(written):
            _rename(other, None)
        _rename(written, node)
        return written

    def _argument(self, value: Any) -> Any:
        return self.node_of(value) if isinstance(value, torch.Tensor) else value

    def _types(self, node: FxNode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        types, keywords = cast("Any", pytree.tree_map)(self._type, (args, kwargs))
        try:
            return result_type(node.target, types, keywords)
        except Unknown:
            if node not in self._constant:
                raise
            computed = self._computed(node)
            if any(leaf.device != _CPU for leaf in pytree.tree_leaves(computed)):
                raise
            return pytree.tree_map(type_like, computed)

    def _type(self, value: Any) -> Any:
        return self.node_of(value).meta["val"] if isinstance(value, torch.Tensor) else value

    def _computed(self, node: FxNode) -> Any:
        """Return what follows from constants alone, computed by torch."""
        if self._constant[node] is None:
            args, kwargs = cast("Any", map_arg)((node.args, node.kwargs), self._computed)
            with torch.inference_mode(False), torch.no_grad():
                self._constant[node] = node.target(*args, **kwargs)
        return self._constant[node]

    def _items(self, node: FxNode, types: Sequence[Type], shared: Shared | None) -> Any:
        """Return one value for each of an operator's results."""
        items: list[_Value] = []
        for index, type_ in enumerate(types):
            item = self.graph.create_node("call_function", operator.getitem, (node, index), {}, "getitem")
            item.meta["val"] = type_
            item.meta.update({key: value for key, value in node.meta.items() if key != "val"})
            if node in self._constant:
                self._constant[item] = None
            if node in self._exact:
                self._exact.add(item)
            items.append(self._value(item, shared))
        return type(types)(items)  # pyright: ignore[reportCallIssue]

    def _locate(self, node: FxNode) -> None:
        line, module = trace_of_stack(self._asked_by)
        node.meta["stack_trace"] = line
        if line is None and module is not None and id(module) in self._paths:
            node.meta["nn_module_stack"] = {"": self._paths[id(module)]}

    def _value(self, node: FxNode, shared: Shared | None = None, *, requires_grad: bool = False) -> _Value:
        value = self._unwatched_value(node, shared or Shared(), requires_grad=requires_grad)
        self._values.append(weakref.ref(value))
        return value

    def _value_of_source(self, node: FxNode, tensor: torch.Tensor) -> Any:
        kind = _Parameter if isinstance(tensor, torch.nn.Parameter) else _Value
        value = self._unwatched_value(node, Shared(is_given=True), requires_grad=tensor.requires_grad, kind=kind)
        value.__dict__.update(vars(tensor))  # what the user wrote on a parameter
        return value

    def _unwatched_value(self, node: FxNode, shared: Shared, *, requires_grad: bool, kind: Any = _Value) -> Any:
        like: Type = node.meta["val"]
        value: Any = torch.Tensor._make_wrapper_subclass(  # pyright: ignore
            kind, like.shape, strides=like.stride(), dtype=like.dtype, device=_CPU, requires_grad=requires_grad
        )
        value._of_tracea = (node, weakref.ref(self), shared)
        shared.add(value)
        return value


def _memory_of(value: _Value) -> Shared:
    return value._of_tracea[2]  # pyright: ignore[reportPrivateUsage]


def _rename(value: _Value, node: FxNode | None) -> None:
    value._of_tracea = (node, *value._of_tracea[1:])  # pyright: ignore[reportPrivateUsage]


def _is_row_major(type_: Any) -> bool:
    return isinstance(type_, torch.Tensor) and type_.stride() == dense(type_.shape, type_.dtype).stride()


def _dispatch(self: Recording, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
    del types
    try:
        return self.record(func, args, kwargs or {})
    except Exception as error:
        self.fail(f"{func}: {type(error).__name__}: {error.__cause__ or error}")


# Set here: torch wraps what a class body has, and its wrapper imports its compiler at the first call.
Recording.__torch_dispatch__ = _dispatch  # pyright: ignore
# What ``type(x).__name__`` and ``isinstance`` say of what a module is given and holds is what they say in a call.
_Value.__name__, _Value.__qualname__, _Value.__module__ = "Tensor", "Tensor", torch.Tensor.__module__
_Parameter: Final[Any] = type("Parameter", (_Value,), {"__module__": torch.nn.Parameter.__module__, "_is_param": True})


def _is_aten(called: Any) -> bool:
    return isinstance(called, OpOverload) and cast("Any", called).namespace == "aten"


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
