"""``tracea cache``: what is stored, where, whether it is sound, and how to be rid of it."""

from __future__ import annotations

from cyclopts import App

from tracea.cli.cache import entries, soundness, trials

__all__ = ["app"]

app = App(
    name="cache",
    help="List, check, remove, export and import what is stored: compiled kernels and trials of earlier searches.\n\n"
    "Example: tracea cache ls --check",
    help_format="plaintext",
    version_flags=(),
)
app.command(entries.remove_entries, name="rm")
app.command(entries.list_entries, name="ls")
app.command(soundness.verify_entries, name="verify")
app.command(entries.collect, name="gc")
app.command(trials.export_records, name="export")
app.command(trials.import_records, name="import")
