"""Passes over graphs: values with ``apply(graph) -> Graph``, which verify what they take and what they give."""
