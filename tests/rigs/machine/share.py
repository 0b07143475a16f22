#!/usr/bin/env python3
"""Write stores that know one image of another engine whose layers are mounted into them: share.py ID NAME:TAG STORE...

/image is image/overlay2 of that engine, and /layers its overlay2. Prints the names of the layers.
"""

import hashlib
import json
import shutil
import sys
from pathlib import Path

IMAGE = Path("/image")
LAYERS = Path("/layers")


def layer_records(content: bytes) -> list[Path]:
    """The records of the image's layers. A layer's id covers all below it."""
    records, identifier = [], ""
    for diff in json.loads(content)["rootfs"]["diff_ids"]:
        identifier = "sha256:" + hashlib.sha256(f"{identifier} {diff}".encode()).hexdigest() if identifier else diff
        records.append(IMAGE / "layerdb" / "sha256" / identifier.removeprefix("sha256:"))
    return records


def main(identifier: str, reference: str, *stores: str) -> None:
    content = IMAGE / "imagedb" / "content" / "sha256" / identifier.removeprefix("sha256:")
    records = layer_records(content.read_bytes())
    layers = [(record / "cache-id").read_text() for record in records]
    for store in map(Path, stores):
        target = store / "image" / "overlay2"
        (target / "imagedb" / "content" / "sha256").mkdir(parents=True)
        shutil.copy(content, target / "imagedb" / "content" / "sha256")
        for record in records:
            shutil.copytree(record, target / "layerdb" / "sha256" / record.name)
        tags = {reference.rpartition(":")[0]: {reference: identifier}}
        (target / "repositories.json").write_text(json.dumps({"Repositories": tags}))
        (store / "overlay2" / "l").mkdir(parents=True)
        for layer in layers:
            # The engine marks a layer as in use beside its files.
            (store / "overlay2" / layer / "diff").mkdir(parents=True)
            (store / "overlay2" / layer / "work").mkdir()
            for name in ("link", "lower"):
                if (LAYERS / layer / name).exists():
                    shutil.copy(LAYERS / layer / name, store / "overlay2" / layer)
            short = (LAYERS / layer / "link").read_text()
            (store / "overlay2" / "l" / short).symlink_to(f"../{layer}/diff")
    print(*layers)


if __name__ == "__main__":
    main(*sys.argv[1:])
