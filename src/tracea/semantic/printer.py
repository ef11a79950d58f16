"""Prints a TileKernel, one line a node: what ``tracea emit --ir`` shows."""

from __future__ import annotations

from collections.abc import Iterator

from tracea.core.expr import Binary, Cast, Constant, Expr, Input, Select, Unary
from tracea.semantic import nodes as n
from tracea.semantic import nodes_async as g
from tracea.semantic import nodes_attention as att
from tracea.semantic import nodes_attention_gradient as grad
from tracea.semantic import nodes_moments as moments
from tracea.semantic import nodes_norm_gradient as norm
from tracea.semantic import nodes_sparse as sparse
from tracea.semantic import nodes_winograd as winograd
from tracea.semantic.index import Const
from tracea.semantic.nodes_halo import Halo
from tracea.semantic.nodes_pairs import PairsTile
from tracea.semantic.predicate import FALSE, TRUE, Predicate
from tracea.semantic.tile_kernel import Buffer, TileKernel

__all__ = ["print_kernel"]

_INDENT = "  "


def print_kernel(kernel: TileKernel) -> str:
    """Return the kernel as readable text: its arguments and buffers, then one line a node, indented by scope."""
    lines = [f"kernel {kernel.name} variant={kernel.variant} target={kernel.target} schedule({kernel.schedule.key})"]
    lines += [f"{_INDENT}param {param.name}: {param.minimum} .. {param.maximum}" for param in kernel.params]
    lines += [f"{_INDENT}scalar {scalar.name}" for scalar in kernel.scalars]
    lines += [f"{_INDENT}table {t.name}[{t.length}]: {t.minimum} .. {t.maximum}" for t in kernel.tables]
    lines += [_INDENT + _buffer(buffer) for buffer in kernel.buffers]
    if kernel.assumptions != TRUE:
        lines.append(f"{_INDENT}assume {kernel.assumptions}")
    lines += [_INDENT + line for line in _block(kernel.body)]
    return "\n".join(lines) + "\n"


def _buffer(buffer: Buffer) -> str:
    shape = ", ".join(map(str, buffer.shape))
    strides = "" if buffer.strides is None else f" strides({', '.join(map(str, buffer.strides))})"
    swizzle = "" if buffer.swizzle is None else f" {buffer.swizzle}"
    return f"{buffer.role.value} {buffer.name}: {buffer.dtype.value}[{shape}]{strides} in {buffer.space.value}{swizzle}"


def _block(body: n.Block) -> Iterator[str]:
    for node in body.nodes:
        yield from _node(node)


def _node(node: n.Node) -> Iterator[str]:
    match node:
        case n.Block():
            yield from _block(node)
        case n.For() | n.Parallel():
            word = "for" if isinstance(node, n.For) else f"parallel {node.level.value}"
            yield f"{word} {node.var} < {node.extent}{_step(node)}:"
            yield from _inside(node.body)
        case n.If():
            yield f"if {node.predicate}:"
            yield from _inside(node.then)
            if node.otherwise.nodes:
                yield "else:"
                yield from _inside(node.otherwise)
        case n.Let():
            yield f"let {node.var} = {node.value}" + ("" if node.bits == 64 else f" in {node.bits} bits")
        case n.Barrier():
            yield f"barrier {node.level.value}"
        case g.Roles():
            for role in node.roles:
                lanes = "" if role.lanes == 32 else f" of {role.lanes} lanes"
                registers = "" if role.registers is None else f" with {role.registers} registers"
                yield f"role {role.name} ({role.executors}{lanes}{registers}) {role.index}:"
                yield from _inside(role.body)
        case g.SegmentLoop():
            yield (
                f"segments of worker {node.worker} of {node.workers} over {node.tiles} x {node.steps}: "
                f"{node.tile}, {node.first}, {node.count}, {node.last}:"
            )
            yield from _inside(node.body)
        case g.TileLoop():
            yield (
                f"turns of worker {node.worker} of {node.workers} over {node.tiles} tiles of {node.steps} uses, share "
                f"{node.share} of {node.shares}: {node.tile}, {node.turn}, {node.first}:"
            )
            yield from _inside(node.body)
        case _:
            yield _leaf(node)


def _inside(body: n.Block) -> Iterator[str]:
    for line in _block(body):
        yield _INDENT + line


def _step(node: n.For | n.Parallel) -> str:
    if node.step == n.ONE:
        return ""
    return f" step {node.step}" + ("" if node.length is None else f" length {node.length}")


def _leaf(node: n.Node) -> str:  # noqa: PLR0911, PLR0912, PLR0915 - one case a node
    match node:
        case n.Pack():
            turned = " turned" if node.turned else ""
            return f"{node.target} = pack(axis {node.axis}{turned}, panel {node.panel}, {node.source})"
        case n.CopyTile():
            masked = f" masked fill {node.fill:g}" if node.masked else ""
            chunks = "" if node.chunk_bytes is None else f" by {node.chunk_bytes} bytes"
            return f"{node.target} = copy({node.source}){chunks}{masked}"
        case Halo():
            taps = "" if node.merged is None else f", taps {node.merged} merged"
            terms = f"{node.terms} terms of {node.lanes} lanes, steps {node.steps}{taps}"
            return f"{node.target} = halo({node.source}; {terms})"
        case n.MicroKernel():
            call = f"{node.c} = {_call(node.intrinsic, node.a, node.b)}{_area(node.image)}"
            return call + _sum(node.accumulate, node.finish) + _epilogue(node.epilogue)
        case n.RowTile():
            return f"{node.target} = {node.kind.value}({_all(node.inputs)}; eps {node.eps:g})" + _epilogue(
                node.epilogue
            )
        case n.PointwiseTile():
            return f"{node.target} = {_expr(node.expr)} of ({_all(node.inputs)})"
        case PairsTile():
            return f"{node.target} = {_expr(node.first)} | {_expr(node.second)} of ({_all(node.inputs)})"
        case n.ReduceTile():
            head = f"{node.target} = {node.kind.value} over axes {list(node.axes)} of ({_all(node.inputs)})"
            return head + _sum(node.accumulate, node.finish) + _epilogue(node.epilogue)
        case g.AsyncCopy():
            chunks = "" if node.chunk_bytes == 16 else f" by {node.chunk_bytes} bytes"
            return f"{node.target} <- async copy({node.source})" + (" masked" if node.masked else "") + chunks
        case g.Gather():
            place = f"{node.source}[{_all(node.coordinates)}]"
            late = "<- async gather" if node.asynchronous else "= gather"
            return f"{node.target} {late}({place} for {_all(node.points)} where {node.predicate}, else {node.fill:g})"
        case g.CommitGroup():
            return "commit group"
        case g.WaitGroup():
            return f"wait group pending {node.pending}"
        case g.MbarrierInit():
            return f"mbarrier init {node.barrier}[{node.slot}] count {node.count}"
        case g.MbarrierExpect():
            return f"mbarrier expect {node.barrier}[{node.slot}] bytes {node.nbytes}"
        case g.MbarrierArrive():
            return f"mbarrier arrive {node.barrier}[{node.slot}]"
        case g.MbarrierWait():
            return f"mbarrier wait {node.barrier}[{node.slot}] parity {node.parity}"
        case g.TmaCopy():
            swizzle = f" swizzle {node.descriptor.swizzle_bytes}" if node.descriptor.swizzle_bytes else ""
            return f"{node.target} <- tma({node.source}){swizzle} signals {node.barrier}[{node.slot}]"
        case g.Clear():
            return f"{node.target} = 0"
        case g.LoadMatrix():
            return f"{node.target} = {_call(node.intrinsic, node.source)}"
        case g.Mma() | g.Wgmma():
            sign = "=" if isinstance(node, g.Mma) else "<-"
            return f"{node.c} {sign} {_call(node.intrinsic, node.a, node.b)}" + _sum(node.accumulate, TRUE)
        case g.WgmmaFence():
            return "wgmma fence"
        case g.WgmmaCommit():
            return "wgmma commit"
        case g.WgmmaWait():
            return f"wgmma wait pending {node.pending}"
        case g.FragmentOp():
            into = _all((*node.outputs, *node.updates))
            return f"{into} = {node.intrinsic.name}({_all((*node.inputs, *node.updates, *node.indices))})"
        case g.StoreFragment():
            return f"{node.target} = {_call(node.intrinsic, node.source)}" + _epilogue(node.epilogue)
        case sparse.RunProduct():
            which = f"line {node.line}" if node.lines == Const(1) else f"each of {node.lines} lines from {node.line}"
            blocks = f"blocks of {which} in chunk {node.chunk} by {node.runs.first}, {node.size} steps each"
            head = f"{node.c} = sum of {_call(node.intrinsic, node.a, node.b)} over {blocks} of {node.depth}"
            return head + _sum(node.accumulate, node.finish) + _epilogue(node.epilogue)
        case att.AttentionStart():
            return f"{_all(node.state.regions)} = no key seen by {node.rows} queries"
        case att.AttentionStep():
            hidden = (" causal" if node.causal else "") + ("" if node.window is None else f" window {node.window}")
            where = f"queries from {node.first_query}, keys from {node.first_key}{hidden}, scale {node.scale:g}"
            score = "" if node.score == Input(0) else f", score {_expr(node.score)} of ({_all(node.operands)})"
            spans = "" if node.span is None else f", span {node.span.number} of {node.span.tables.spans}"
            taken = _call(node.intrinsic, node.queries, node.keys, node.values)
            through = node.scores if node.weights is None else f"{node.scores}, {node.weights}"
            return f"{_all(node.state.regions)} take {taken} of {where}{spans}{score} through {through}"
        case att.AttentionFinish():
            return f"{node.target} = {node.state.sums} / {node.state.totals}"
        case att.AttentionCombine():
            return f"{node.target} = parts of {node.part} keys of {node.state.sums} / {node.state.totals}"
        case grad.AttentionPeaks() | grad.AttentionGradient():
            return _key_block(node)
        case grad.AttentionDeltas():
            return f"{node.deltas} = row sums of {node.grads} * {node.results}; {node.totals} = their inverses"
        case grad.AttentionSlopeEnd():
            return f"{node.target} = {node.sums}"
        case norm.NormGradientTile() | norm.PlaneGradientTile():
            read = [node.grads, node.source, *([] if node.weight is None else [node.weight])]
            taken = _call(node.intrinsic, *read)
            kind = node.kind.value if isinstance(node, norm.NormGradientTile) else "planes"
            return f"{node.target}, {node.sums} = {taken} of {kind}, eps {node.eps:g}"
        case moments.MomentsTile():
            return f"{node.target} = {_call(node.intrinsic, *filter(None, (node.source, node.grads)))}"
        case moments.MomentsFold():
            read = filter(None, (node.states, node.source, node.about, node.grads))
            return f"{node.target} = {_call(node.intrinsic, *read)} in parts of {node.step}"
        case winograd.TransformImage() | winograd.TransformFilters() | winograd.TransformBack():
            return _transform(node)
        case g.SignalFlag():
            return f"signal {node.flag}"
        case g.AwaitFlag():
            return f"await {node.flag}"
        case _:
            return repr(node)


def _key_block(node: grad.AttentionPeaks | grad.AttentionGradient) -> str:
    hidden = (" causal" if node.causal else "") + ("" if node.window is None else f" window {node.window}")
    where = f"queries from {node.first_query}, keys from {node.first_key}{hidden}, scale {node.scale:g}"
    score = "" if node.score == Input(0) else f", score {_expr(node.score)} of ({_all(node.operands)})"
    if isinstance(node, grad.AttentionPeaks):
        taken = _call(node.intrinsic, node.queries, node.keys)
        return f"{_all((node.peaks, node.totals))} take {taken} of {where}{score} through {node.scores}"
    read = (node.queries, node.keys, node.values, node.grads, node.query_rows, node.grad_rows)
    own = (node.scores, node.slopes)
    if node.terms is not None:
        read += (node.terms.key_columns,)
        own += (node.terms.weights, node.terms.slopes, node.terms.turned)
    by = _all((node.peaks, node.totals, node.deltas))
    sums = _all((node.sums, node.key_sums, node.value_sums))
    taken = f"{_call(node.intrinsic, *read)} of {where}{score}, slope {_expr(node.slope)}"
    return f"{sums} += {taken} by {by} through {_all(own)}"


def _call(intrinsic: n.Intrinsic, *operands: n.Region) -> str:
    attributes = ", ".join(f"{name}={value}" for name, value in intrinsic.attributes)
    return f"{intrinsic.name}{f'<{attributes}>' if attributes else ''}({_all(operands)})"


def _transform(node: winograd.TransformImage | winograd.TransformFilters | winograd.TransformBack) -> str:
    kind = {winograd.TransformImage: "image", winograd.TransformFilters: "filters", winograd.TransformBack: "results"}
    tiles = "" if isinstance(node, winograd.TransformFilters) else f"; {_all(node.tiles)} tiles"
    call = f"{kind[type(node)]} of {node.title}({node.source}{tiles})"
    if isinstance(node, winograd.TransformBack):
        return f"{node.target} = {_expr(node.expr)} of ({_all((call, *node.operands))})"
    return f"{node.target} = {call}"


def _area(image: n.ImageArea | None) -> str:
    if image is None:
        return ""
    parts = zip(("rows", "columns"), image.first, image.extent, strict=False)
    return "".join(f" without {name} outside of 0 : {size}, from {first} on" for name, first, size in parts)


def _sum(accumulate: Predicate, finish: Predicate) -> str:
    text = "" if accumulate == FALSE else f" added where {accumulate}"
    return text if finish == TRUE else f"{text} finished where {finish}"


def _epilogue(epilogue: n.EpilogueCall | None) -> str:
    if epilogue is None:
        return ""
    operands = f" with ({_all(epilogue.operands)})" if epilogue.operands else ""
    return f" then {_expr(epilogue.expr)}{operands}" + ("" if epilogue.target is None else f" into {epilogue.target}")


_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
}


def _expr(expr: Expr) -> str:
    """Return a scalar expression as text; ``$0`` is the accumulator or the first input."""
    match expr:
        case Input(index=index):
            return f"${index}"
        case Constant(value=value):
            return f"{value:g}"
        case Unary(function=function, operand=operand):
            return f"{function.value}({_expr(operand)})"
        case Binary(function=function, left=left, right=right):
            sign = _INFIX.get(function.value)
            a, b = _expr(left), _expr(right)
            return f"{function.value}({a}, {b})" if sign is None else f"({a} {sign} {b})"
        case Select(condition=condition, if_true=if_true, if_false=if_false):
            return f"select({_expr(condition)}, {_expr(if_true)}, {_expr(if_false)})"
        case Cast(operand=operand, dtype=dtype):
            return f"{dtype.value}({_expr(operand)})"
        case _:
            return repr(expr)


def _all(values: tuple[object, ...]) -> str:
    return ", ".join(value.name if isinstance(value, n.Scalar) else str(value) for value in values)
