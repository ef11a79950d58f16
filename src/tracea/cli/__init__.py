"""The command line: one file a verb; what a verb needs is imported when it runs."""
