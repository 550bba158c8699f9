"""How pages are made of templates: text from logs is escaped, and what a template lacks is an error."""

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

HERE = "evaluation.comparison.report"


def page_environment(package: str = HERE) -> Environment:
    """The templates of a package, and beside them those that all pages share."""
    return Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(HERE)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
