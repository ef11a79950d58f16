"""``tracea targets``: the hardware that the catalogue describes, and where each of its numbers was read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from tracea.cli.console import print_json, print_table, print_title

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tracea.targets import Fact, Product

__all__ = ["app"]

app = App(
    name="targets",
    help="List the hardware that the catalogue describes, and show its numbers with their sources.\n\n"
    "Example: tracea targets show h100",
    help_format="plaintext",
    version_flags=(),
)


@app.command(name="ls")
def list_targets(*, json: Annotated[bool, Parameter(negative=())] = False) -> int:
    """List the names of the catalogue: generic instruction sets, GPU architectures, products.

    Kernels is what --target makes kernels for; a product without it is described only.

    Example: tracea targets ls --json

    Parameters
    ----------
    json
        Print the list as JSON.
    """
    rows = list(_rows())
    if json:
        print_json(rows)
        return 0
    header = ("name", "what it is", "kernels", "units", "clock MHz", "f16 matrix TFLOP/s", "memory GB/s")
    print_table(header, ([_cell(value) for value in row.values()] for row in rows), numbers=(3, 4, 5, 6))
    return 0


@app.command(name="show")
def show_target(name: str, /, *, json: Annotated[bool, Parameter(negative=())] = False) -> int:
    """Show each number of one entry with the document it was read in and the figure that stands there.

    Example: tracea targets show mi300x

    Parameters
    ----------
    name
        A name of tracea targets ls.
    json
        Print the numbers as JSON.
    """
    from tracea import targets
    from tracea.errors import InvalidOption

    if name in targets.product_names():
        return _show_product(targets.read_product(name), json=json)
    if name in targets.names():
        return _show_facts(name, targets.read(name).facts, json=json)
    if name in targets.gpu_names():
        return _show_facts(name, targets.read_gpu(name).facts, json=json)
    known = (*targets.names(), *targets.gpu_names(), *targets.product_names())
    raise InvalidOption(
        field="name",
        got=name,
        expected=f"one of the {len(known)} names of the catalogue",
        remedy=f"{targets.meant(targets.near(name, known))}tracea targets ls lists every name",
    )


def _rows() -> Iterator[dict[str, Any]]:
    from tracea import targets

    for name in targets.names():
        yield _row(name, f"generic {name} core", targets.load(name).isa)
    for name in targets.gpu_names():
        yield _row(name, f"architecture, counts of {targets.load_gpu(name).product}", name)
    for name in targets.product_names():
        product = targets.read_product(name)
        gpu, cpu = product.gpu, product.cpu
        if cpu is not None:
            kernels, units, clock = cpu.isa, cpu.cores, cpu.boost_clock_mhz
        else:
            architecture = "" if gpu is None else gpu.architecture
            kernels = architecture if architecture in targets.gpu_names() else ""
            units, clock = (None, None) if gpu is None else (gpu.compute_units, gpu.clock_mhz)
        peak = None if gpu is None else gpu.gops("f16_matrix")
        bandwidth = product.memory.bandwidth_mb_per_s
        yield _row(name, product.title, kernels, units, clock, _thousandth(peak), _thousandth(bandwidth))


def _row(  # noqa: PLR0917  # the columns in their order
    name: str,
    title: str,
    kernels: str,
    units: int | None = None,
    clock_mhz: int | None = None,
    f16_tflops: float | None = None,
    memory_gb_per_s: float | None = None,
) -> dict[str, Any]:
    return {
        "name": name,
        "title": title,
        "kernels": kernels,
        "units": units,
        "clock_mhz": clock_mhz,
        "f16_matrix_tflops": f16_tflops,
        "memory_gb_per_s": memory_gb_per_s,
    }


def _thousandth(number: int | None) -> float | None:
    return None if number is None else number / 1000


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.0f}" if isinstance(value, float) else str(value)


def _show_product(product: Product, *, json: bool) -> int:
    from tracea.targets import gpu_names

    if json:
        import msgspec

        print_json(
            {
                "name": product.name,
                "title": product.title,
                "vendor": product.vendor,
                "sources": msgspec.to_builtins(dict(product.sources)),
                "readings": msgspec.to_builtins(dict(product.readings)),
            }
        )
        return 0
    print_title(f"{product.name}: {product.title}")
    print_table(
        ("number", "value", "figure", "source"),
        (
            (path, str(reading.value), _figure(reading.figure, reading.note), reading.source)
            for path, reading in product.readings.items()
        ),
        numbers=(1,),
    )
    print_table(
        ("source", "title", "address"),
        ((key, _figure(source.title, source.via), source.url) for key, source in product.sources.items()),
    )
    architecture = "" if product.gpu is None else product.gpu.architecture
    if architecture in gpu_names():
        print(f"The limits of a multiprocessor are the architecture's: tracea targets show {architecture}")
    return 0


def _figure(text: str, more: str) -> str:
    return f"{text} ({more})" if more else text


def _show_facts(name: str, facts: Mapping[str, Fact], *, json: bool) -> int:
    if json:
        import msgspec

        print_json({"name": name, "facts": msgspec.to_builtins(dict(facts))})
        return 0
    print_title(name)
    print_table(
        ("number", "value", "figure", "source"),
        (
            (field, str(fact.value), "", f"assumed: {fact.assumption}")
            if fact.source is None
            else (field, str(fact.value), _figure(fact.figure, fact.note), fact.source.title)
            for field, fact in facts.items()
        ),
        numbers=(1,),
    )
    sources = dict.fromkeys(fact.source for fact in facts.values() if fact.source is not None)
    print_table(("source", "address"), ((_figure(source.title, source.via), source.url) for source in sources))
    return 0
