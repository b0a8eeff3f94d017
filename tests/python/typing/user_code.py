"""Code of a user that mypy --strict must accept, and mistakes that it must find.

A line with `# E: code` must raise exactly that error; every other line none.
"""

import numpy as np
import numpy.typing as npt

import headpond as hp


def train() -> int:
    pipe = hp.from_files("photos").shuffle(seed=7).image("data", size=224, flip=True).batch(32)
    rows = 0
    with pipe.loader() as loader:
        for batch in loader:
            rows += len(batch["label"])
        state = loader.state_dict()
        loader.load_state_dict(state)
        print(loader.report())
    return rows


def arrays(x: npt.NDArray[np.float32]) -> hp.Dataset:
    dataset = hp.from_arrays({"x": x})
    length: int = len(dataset)
    name: str = dataset.fingerprint
    print(length, name)
    return dataset


def mistakes() -> None:
    hp.from_files(3)  # E: arg-type
    hp.from_files("photos").shuffle(seed="seven")  # E: arg-type
    hp.from_files("photos").batch(32).loader(uneven="sometimes")  # E: arg-type
    hp.from_files("photos").batch(32).loader().no_such_method()  # E: attr-defined
    hp.from_records("a.bin", "float32")  # E: call-overload
