"""Encode the passages of a profile, alone or shared out over processes and machines.

    python -m lib.encode PROFILE                     # all of it, on every GPU of this machine
    python -m lib.encode PROFILE --shard 3/16        # every 16th file of vectors, from the 3rd on
    python -m lib.encode PROFILE --ray               # a Ray cluster, or this machine as one

A file of vectors holds 65,536 passages of one corpus. Any shard may be run again, stopped or
killed at any time: it goes on where it was. Several processes of one machine are ``processes`` in
``encoder_options``, or a shard each. Machines may share a folder (``CHR_CACHE``), or each have its
own: then copy the files of ``vectors`` together, as they are. What is encoded here is found by
``make figures``. An array job of SLURM, a GPU each:

    #!/bin/bash
    #SBATCH --array=1-16 --gres=gpu:1 --cpus-per-task=8 --requeue
    export CHR_CACHE=/shared/chr
    .venv/bin/python -m lib.encode my-paper.toml --shard $SLURM_ARRAY_TASK_ID/16
"""

from __future__ import annotations

import argparse
import importlib.util
import os
from typing import Any

from lib.base import paths
from lib.base.command import KEYS
from lib.base.files import locked
from lib.embed import Encoder, load_encoder
from lib.index_build import passage_vectors
from lib.open_retriever import store_of
from lib.profiles import Profile, load_profile

Shard = tuple[int, int]


def read_shard(text: str) -> Shard:
    """(3, 16) of "3/16"; ValueError for what is none."""
    place, slash, count = text.partition("/")
    if not (slash and place.isdecimal() and count.isdecimal() and 1 <= int(place) <= int(count)):
        raise ValueError(f"--shard is i/n, from 1/n to n/n, such as 3/16, not {text!r}")
    return int(place), int(count)


def parts_of(shard: Shard, count: int) -> list[Shard]:
    """The shard's own shards: together they are the shard."""
    place, of = shard
    return [(place + of * number, of * count) for number in range(count)]


def encode_profile(profile: Profile, shard: Shard = (1, 1), encoder: Encoder | None = None) -> None:
    """Encode what is missing of the passages that a profile searches, or of one shard of them."""
    encoder = encoder or load_encoder(profile.encoder, **profile.encoder_options)
    with locked(paths.cache("passages") / "encode"):  # one reads the corpora, the others wait
        store = store_of(profile, encoder)
    found = passage_vectors(store, encoder, dtype=profile.vectors, shard=shard)
    there = sum(map(len, found))
    print(f"shard {shard[0]}/{shard[1]}: {there:,} of {len(store):,} passages are encoded")


def on_ray(name: str, shard: Shard) -> None:
    """The shard by one actor with a model of its own for each GPU of a Ray cluster, or, without
    GPUs, for each processor; four shards each, so that a fast one takes more.

    Ray starts on this machine unless RAY_ADDRESS names a cluster, whose machines have the project
    and ``CHR_CACHE`` at the same places, and keys of their own. A shard whose machine is lost is
    begun again elsewhere.
    ValueError without Ray.
    """
    if importlib.util.find_spec("ray") is None:
        raise ValueError("Ray is not installed. Next: .venv/bin/python -m pip install ray")
    import ray
    from ray.util import ActorPool

    named = [name for name in os.environ if name.startswith(("CHR_", "HF_"))]
    # No key: Ray writes what its workers are given into its logs.
    own = {name: os.environ[name] for name in named if name not in KEYS}
    ray.init(runtime_env={"env_vars": own | {"PYTHONPATH": str(paths.ROOT)}})
    there = ray.cluster_resources()
    kind = "GPU" if there.get("GPU") else "CPU"
    workers = int(there[kind])
    needs: dict[str, Any] = {"num_gpus": 1} if kind == "GPU" else {"num_cpus": 1}
    # A killed actor is made again and given its shard again, which goes on from what is stored.
    actor = ray.remote(max_restarts=3, max_task_retries=3, **needs)(_Actor)
    pool = ActorPool([actor.remote(name) for _ in range(workers)])
    for _ in pool.map_unordered(
        lambda one, part: one.encode.remote(part), parts_of(shard, 4 * workers)
    ):
        pass
    ray.shutdown()


class _Actor:
    """What a Ray worker keeps: a profile and its encoder."""

    def __init__(self, name: str):
        self._profile = load_profile(name)
        self._encoder = load_encoder(self._profile.encoder, **self._profile.encoder_options)

    def encode(self, shard: Shard) -> None:
        encode_profile(self._profile, shard, self._encoder)


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m lib.encode", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("profile", help="mini, open, paper, or a file of your own")
    parser.add_argument("--shard", default="1/1", help="i/n: every n-th file of vectors")
    parser.add_argument("--ray", action="store_true", help="share it over a Ray cluster")
    asked = parser.parse_args(arguments)
    shard = read_shard(asked.shard)
    if asked.ray:
        on_ray(asked.profile, shard)
    else:
        encode_profile(load_profile(asked.profile), shard)


if __name__ == "__main__":
    main()
