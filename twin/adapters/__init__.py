"""Other interfaces of an environment; nothing inside the project uses them.

`stepwise` needs nothing more. `gymnasium_env`, `pettingzoo_env` and `minari_dataset` need the package of their name and
are imported where they are used.
"""

from twin.adapters.stepwise import Episode, Stepwise, TimeStep, stepwise

__all__ = ["Episode", "Stepwise", "TimeStep", "stepwise"]
