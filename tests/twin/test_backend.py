"""What the compiler is told depends on the installed version: XLA ends the process over a flag that it lacks."""

import jax
import pytest

from twin import backend

EMITTERS = "--xla_cpu_use_fusion_emitters=false"
ROLLED = "--xla_backend_extra_options=xla_cpu_disable_loop_unrolling"
FUSION = "--xla_cpu_experimental_ynn_fusion_type="


@pytest.mark.parametrize(
    ("installed", "given", "expected"),
    [
        ("0.10.1", "", f"{EMITTERS} {ROLLED}"),
        ("0.10.1", "--xla_other", f"--xla_other {EMITTERS} {ROLLED}"),
        ("0.10.1", "--xla_cpu_use_fusion_emitters=true", f"--xla_cpu_use_fusion_emitters=true {ROLLED}"),
        ("0.10.1", "--xla_backend_extra_options=x", f"--xla_backend_extra_options=x {EMITTERS}"),
        ("0.10.2", "", FUSION),
        ("0.11.2", f"{FUSION}x", f"{FUSION}x"),
        ("0.12.0", "--xla_other", "--xla_other"),
        ("", "", ""),
    ],
)
def test_flags_by_version(monkeypatch: pytest.MonkeyPatch, installed: str, given: str, expected: str) -> None:
    monkeypatch.setattr(backend, "_installed", lambda: installed)
    monkeypatch.setenv("XLA_FLAGS", given)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    backend.prepare()
    assert backend.os.environ["XLA_FLAGS"] == expected


@pytest.mark.parametrize(("given", "expected"), [(None, "highest"), ("tensorfloat32", "tensorfloat32")])
def test_products_are_exact_where_jax_is_imported_first(given: str | None, expected: str) -> None:
    """On a GPU they would be rounded to 10 bits; what was chosen is kept."""
    before = jax.config.jax_default_matmul_precision
    try:
        jax.config.update("jax_default_matmul_precision", given)
        backend.prepare()
        assert jax.config.jax_default_matmul_precision == expected
    finally:
        jax.config.update("jax_default_matmul_precision", before)
