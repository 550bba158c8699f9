"""Optional parts of the installation: how to get one that is missing."""


def how_to_install(extra: str) -> str:
    """What to do where a package of an extra is missing, in words; the project is on no package index."""
    return f"pip install 'WHEEL[{extra}]', with the path of the wheel that make wheel builds"
