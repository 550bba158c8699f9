"""Detached signatures of bundles: they prove the maker, where `--expect` fixes which one it is. Needs the extra `sign`.

`BUNDLE.signature` lies beside the bundle: an Ed25519 signature, in base64, of the words below and the content hash. In
the folder of a job's step, too, where it stays until the step is made again.
Keys are PEM files as openssl writes them: `openssl genpkey -algorithm ed25519 -out private.pem`, and `openssl pkey -in
private.pem -pubout -out public.pem`. Whoever holds the private key vouches for every bundle signed with it, old ones
too.
"""

import base64
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from logs_schema.errors import ProductError
from logs_schema.extras import how_to_install
from logs_schema.product import SIGNATURE, verify
from offline_rl.bundle import KIND, MAX_BYTES, kind_of, refuse_other_kind

WORDS = b"schedtwin bundle "
"""Before the content hash, so that a signature of something else is none of a bundle."""


def signature_beside(bundle: Path) -> Path:
    """Where the signature of a bundle lies."""
    whole = bundle.absolute()
    return whole.with_name(f"{whole.name}{SIGNATURE}")


def sign_bundle(bundle: Path, private_key: Path) -> Path:
    """Signs a bundle and writes the signature beside it; an older one is replaced.

    Args:
        bundle: Its folder; verified first.
        private_key: PEM file of an Ed25519 key, without a passphrase.

    Returns:
        Where the signature is.

    Raises:
        ProductError: The bundle is damaged, the key is none, or the library is missing.
    """
    manifest = verify(bundle, kind_of(bundle) or KIND, max_bytes=MAX_BYTES, hidden_allowed=False)
    serialization, ed25519, _ = _library()
    key = _key(
        private_key,
        lambda content: serialization.load_pem_private_key(content, None),
        ed25519.Ed25519PrivateKey,
    )
    path = signature_beside(bundle)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_bytes(base64.b64encode(key.sign(WORDS + manifest.content_hash.encode())) + b"\n")
    aside.rename(path)
    return path


def verified(folder: Path, kind: str, *, expect: str | None = None, trust: Path | None = None) -> str:
    """The content hash of a bundle, once its files are found to be those of its manifest.

    Args:
        folder: The bundle.
        kind: What it must be a bundle of.
        expect: The content hash that it must have; None accepts any.
        trust: PEM file of the public key that it must be signed with; None: any.

    Raises:
        ProductError: It is another bundle than that, damaged or not signed so.
    """
    refuse_other_kind(folder, kind)
    manifest = verify(folder, kind, expect=expect, max_bytes=MAX_BYTES, hidden_allowed=False)
    if trust is not None:
        refuse_unsigned(folder, manifest.content_hash, trust)
    return manifest.content_hash


@contextmanager
def verified_while(
    folder: Path, kind: str, *, expect: str | None = None, trust: Path | None = None
) -> Iterator[str]:
    """The content hash of a bundle, as from `verified`, while it is read; verified once more when that is done: what
    was read is what was verified, and no file was replaced meanwhile."""
    content_hash = verified(folder, kind, expect=expect, trust=trust)
    yield content_hash
    verified(folder, kind, expect=content_hash)


def refuse_unsigned(bundle: Path, content_hash: str, public_key: Path) -> None:
    """Makes sure that a bundle is signed with the private key of a public one.

    Args:
        bundle: Its folder.
        content_hash: Its content hash, verified.
        public_key: PEM file of an Ed25519 key.

    Raises:
        ProductError: There is no signature, it is of another bundle or key, or the library is missing.
    """
    serialization, ed25519, invalid = _library()
    key, path = (
        _key(public_key, serialization.load_pem_public_key, ed25519.Ed25519PublicKey),
        signature_beside(bundle),
    )
    try:
        key.verify(base64.b64decode(path.read_bytes()[:1024], validate=False), WORDS + content_hash.encode())
    except (OSError, ValueError, invalid) as error:
        raise ProductError(
            "the bundle is not signed with the trusted key",
            where=f"{path}: {type(error).__name__}",
            allowed=f"a signature of content hash {content_hash} by the key of {public_key}",
            advice="schedtwin sign BUNDLE --key PRIVATE.pem, where it was made; do not use this one otherwise",
        ) from error


def _key(path: Path, read: Any, kind: type) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        key = read(path.read_bytes())
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _no_key(path, str(error)) from error
    if not isinstance(key, kind):
        raise _no_key(path, f"a key of another kind, {type(key).__name__}")
    return key


def _no_key(path: Path, where: str) -> ProductError:
    return ProductError(
        "this is no key for bundles",
        where=f"{path}: {where}"[:300],
        allowed="an Ed25519 key as PEM, without a passphrase; the public one to trust, the private one to sign",
        advice="openssl genpkey -algorithm ed25519 -out private.pem; openssl pkey -in private.pem -pubout",
    )


def _library() -> tuple[Any, Any, type[Exception]]:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise ProductError(
            "signatures need 'cryptography', which is not installed",
            advice=f"{how_to_install('sign')}; or pin the bundle with --expect, which needs nothing",
        ) from error
    return serialization, ed25519, InvalidSignature
