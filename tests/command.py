"""The command line, called in the tests' own process."""

from evaluation.commands import cli


def run(*words: object) -> int:
    """The exit status of `schedtwin` with these words."""
    return cli.main([str(word) for word in words])


def run_silently(*words: object) -> int:
    """The same without a display of progress."""
    return run(*words, "--no-progress")
