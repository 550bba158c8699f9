"""Signed bundles: what is trusted is the key, whatever the bundle says of itself."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from evaluation.commands.cli import main
from evaluation.jobs.job import Step, run_steps
from evaluation.pipeline.fleet.holdings import What, holdings_in
from logs_schema.errors import ProductError
from logs_schema.product import verify
from logs_schema.progress import SilentProgress
from offline_rl.runner import load
from offline_rl.serving.metrics import Metrics
from offline_rl.serving.policies import PolicySlot, load_policy
from offline_rl.signing import sign_bundle, signature_beside
from tests.serving.bundles import make_bundle


def key_files(folder: Path, name: str, key: object = None) -> tuple[Path, Path]:
    """A private and a public key as PEM files."""
    key = key or ed25519.Ed25519PrivateKey.generate()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub.pem"
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))  # type: ignore[attr-defined]
    as_info = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key.public_key().public_bytes(*as_info))  # type: ignore[attr-defined]
    return private, public


@pytest.fixture
def signed(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A signed bundle, its private and its public key."""
    keys = key_files(tmp_path, "maker")
    bundle = make_bundle(tmp_path / "bundle")
    sign_bundle(bundle, keys[0])
    return bundle, *keys


def test_a_signed_bundle_is_loaded_and_another_one_in_its_place_is_not(
    signed: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, private, public = signed
    metrics = Metrics()
    slot = PolicySlot(lambda: load_policy(bundle, trust=public), metrics)
    first = load(bundle, trust=public).content_hash
    shutil.rmtree(bundle)
    make_bundle(bundle, seed=1)
    with pytest.raises(ProductError, match="InvalidSignature"):
        slot.reload()
    for command in (["inspect", str(bundle)], ["serve", str(bundle), "--port", "0"]):
        assert main([*command, "--trust", str(public)]) == 2
        assert "not signed with the trusted key" in capsys.readouterr().err
    assert main(["sign", str(bundle), "--key", str(private)]) == 0
    assert slot.reload().content_hash != first
    assert main(["inspect", str(bundle), "--trust", str(public)]) == 0


def test_other_keys_and_other_files_are_refused_by_name(
    signed: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    bundle, private, public = signed
    other, of_other = key_files(tmp_path, "other")
    curve, of_curve = key_files(tmp_path, "curve", ec.generate_private_key(ec.SECP256R1()))
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: load(bundle, trust=of_other), "InvalidSignature"),
        (lambda: load(bundle, trust=of_curve), "another kind"),
        (lambda: load(bundle, trust=private), "no key for bundles"),
        (lambda: load(bundle, trust=tmp_path / "absent.pem"), "no key for bundles"),
        (lambda: sign_bundle(bundle, public), "no key for bundles"),
        (lambda: sign_bundle(bundle, curve), "another kind"),
        (lambda: sign_bundle(tmp_path, other), "no bundle here"),
    ]
    for ask, message in cases:
        with pytest.raises(ProductError, match=message):
            ask()
    signature_beside(bundle).write_text("no signature")
    with pytest.raises(ProductError, match="not signed"):
        load(bundle, trust=public)
    signature_beside(bundle).unlink()
    with pytest.raises(ProductError, match="FileNotFoundError"):
        load(bundle, trust=public)
    load(bundle)


OTHER_CURVE = """-----BEGIN EC PRIVATE KEY-----
MD4CAQEEDrOx6vmVS6XTE+OILHO5oAcGBSuBBAAGoSADHgAEmw3t4WwjZOj6Yjrb
3Ya88+YbYCnU36ppefVAjg==
-----END EC PRIVATE KEY-----
"""
"""A key on secp112r1, which the library does not know."""


def test_a_key_of_a_kind_that_the_library_does_not_know_is_refused_too(
    signed: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "other.pem").write_text(OTHER_CURVE)
    with pytest.raises(ProductError, match="no key for bundles"):
        sign_bundle(signed[0], tmp_path / "other.pem")


def test_without_the_library_the_message_says_what_to_install(
    signed: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, _, public = signed
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(ProductError, match=r"(?s)WHEEL\[sign\].*--expect"):
        load(bundle, trust=public)
    load(bundle)


def test_a_bundle_in_a_job_s_folder_keeps_its_signature_for_as_long_as_it_stands(tmp_path: Path) -> None:
    def steps(seed: int) -> list[Step]:
        def build(out: Path, *_: Any) -> None:
            make_bundle(out / "bundle", seed=seed)

        return [Step("bundle", "job-bundle", build, seed=seed)]

    private, public = key_files(tmp_path, "maker")
    work = tmp_path / "work"
    product = run_steps(steps(0), work, SilentProgress())["bundle"]
    signature = sign_bundle(product / "bundle", private)
    verify(product)
    assert [(one.what, one.remark) for one in holdings_in(work)] == [(What.PRODUCT, "")]
    run_steps(steps(0), work, SilentProgress())
    content_hash = load(product / "bundle", trust=public).content_hash
    for stranger in ("other.signature", "bundle/bundle.signature", "bundle.signature.old"):
        (product / stranger).write_text("x")
        with pytest.raises(ProductError, match=f"foreign: {stranger}"):
            verify(product)
        (product / stranger).unlink()
    run_steps(steps(1), work, SilentProgress())
    assert load(product / "bundle").content_hash != content_hash
    assert not signature.exists()
