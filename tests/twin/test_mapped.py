"""A map over one element is what a map is, without being one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from twin.mapped import mapped


@pytest.mark.parametrize("size", [1, 3])
def test_it_is_a_map_whatever_the_size(size):
    def both(common, each):
        return {"sum": common + each["a"], "common": common}

    each = {"a": jnp.arange(2.0 * size).reshape(size, 2)}
    common = jnp.array([10.0, 20.0])
    found = mapped(both, (None, 0), size)(common, each)
    wanted = jax.vmap(both, in_axes=(None, 0))(common, each)
    assert found.keys() == wanted.keys()
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


def test_one_element_is_traced_without_a_map():
    seen = []
    mapped(lambda leaf: seen.append(leaf.shape) or leaf, (0,), 1)(jnp.zeros((1, 4)))
    assert seen == [(4,)]
    with pytest.raises(ValueError, match=r"shorter|longer"):
        mapped(lambda leaf: leaf, (0,), 1)(jnp.zeros(1), jnp.zeros(1))
