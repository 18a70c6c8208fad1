"""Goal: what a program sees through a mount is what it sees in a plain folder, whatever it does."""

import os
import random
from pathlib import Path

import pytest
from mounting import mounted, needs_mounts
from random_files import Folder

_STEPS = 50_000 if "PENSTOCK_NIGHTLY" in os.environ else 3_000


@needs_mounts
@pytest.mark.parametrize("seed", range(2))
def test_random_operations_give_what_a_plain_folder_gives(tmp_path: Path, seed: int) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "plain").mkdir()
    os.umask(0o022)
    with mounted(tmp_path / "below", None, "--dirty-limit", "1M"):
        here, there = Folder(tmp_path / "below"), Folder(tmp_path / "plain")
        for step in range(_STEPS):
            made = here.do(random.Random(f"{seed} {step}"))
            expected = there.do(random.Random(f"{seed} {step}"))
            assert made == expected, f"seed {seed} step {step}"
        assert list(here.contents()) == list(there.contents())
        here.close_all()
        there.close_all()
    assert list(here.contents()) == list(there.contents())
