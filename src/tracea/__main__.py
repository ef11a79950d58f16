"""``python -m tracea`` is ``tracea``; Ctrl-C ends it quietly from its first moment on."""

import sys

__all__ = ["start"]

_INTERRUPTED = 130  # as a shell reports SIGINT


def start() -> int:
    """Run the command line and return its exit code."""
    try:
        from tracea.cli.main import main
    except KeyboardInterrupt:  # the imports take half a second
        print("interrupted before anything was begun", file=sys.stderr)
        return _INTERRUPTED
    return main()


if __name__ == "__main__":
    sys.exit(start())
