"""Every problem whose bundles decide from plain descriptions; a new one is a file with a form, and a line here."""

from offline_rl.runner.form import ServingForm
from offline_rl.runner.ordering_form import ORDERING_FORM
from offline_rl.runner.placement_form import PLACEMENT_FORM

FORMS: tuple[ServingForm, ...] = (PLACEMENT_FORM, ORDERING_FORM)


def form_of(problem: str) -> ServingForm | None:
    """A problem's form; None for problems that are decided from arrays only."""
    return next((form for form in FORMS if form.problem == problem), None)
