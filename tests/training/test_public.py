from __future__ import annotations

import subprocess
import sys

import burnish.training

PUBLIC = """
Diverged Hyperparameters JobError MissingDependency NotTrainable TrainingError
"""


def test_the_public_face_is_deliberate():
    assert sorted(burnish.training.__all__) == sorted(PUBLIC.split())
    assert all(hasattr(burnish.training, name) for name in burnish.training.__all__)


def test_it_is_importable_without_any_framework_and_without_numpy():
    code = (
        "import sys, burnish.training; sys.exit(bool({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
