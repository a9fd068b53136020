"""Launch commands that hand the server elsewhere: the environment, the port, the shell."""

from __future__ import annotations

import json
import shlex

import pytest

from specbench.config.grid import Arm
from specbench.config.model import EngineConfig, Target
from specbench.engines.prefix import make_prefix, remote_start
from specbench.engines.vllm import VllmEngine

ENV = {"VLLM_NO_USAGE_STATS": "1", "HF_TOKEN": "hf_secret"}


def test_a_local_command_is_left_alone() -> None:
    prefix = make_prefix(["numactl", "-C", "0-7", "vllm", "serve"], 8000, ENV)
    assert prefix.words == ("numactl", "-C", "0-7", "vllm", "serve")
    assert prefix.argv(["--x", '{"a":1}'])[-1] == '{"a":1}'


def test_a_container_gets_the_names_of_variables_and_never_their_values() -> None:
    command = "docker --context gpu run --rm -e HF_TOKEN --network=host vllm/vllm-openai:v0.32.0"
    words = make_prefix(command.split(), 8000, ENV).words
    assert " ".join(words) == (
        "docker --context gpu run --env VLLM_NO_USAGE_STATS --rm -e HF_TOKEN --network=host "
        "vllm/vllm-openai:v0.32.0"
    )


def test_a_published_port_is_filled_in_and_listened_on_inside() -> None:
    prefix = make_prefix(["podman", "run", "-p", "127.0.0.1:{port}:{port}", "image"], 18123, {})
    assert prefix.words == ("podman", "run", "-p", "127.0.0.1:18123:18123", "image")
    assert prefix.host == "0.0.0.0"
    assert make_prefix(["docker", "run", "--network=host", "image"], 18123, {}).host == "127.0.0.1"


@pytest.mark.parametrize(
    ("command", "remote"),
    [
        ("ssh gpu1 vllm serve", "vllm"),
        ("ssh -tt -L {port}:127.0.0.1:{port} me@gpu1 vllm serve", "vllm"),
        ("ssh -p22 -oBatchMode=yes -i key gpu1 vllm serve", "vllm"),
        ("ssh -tp 22 gpu1 vllm serve", "vllm"),
    ],
)
def test_where_the_other_machines_command_begins(command: str, remote: str) -> None:
    words = command.split()
    assert words[remote_start(words, 0)] == remote


def test_what_goes_through_a_remote_shell_comes_out_as_it_was() -> None:
    config = EngineConfig.model_validate(
        {
            "kind": "vllm",
            "command": "ssh -tt -L {port}:127.0.0.1:{port} gpu1 vllm serve",
            "env": {"HF_TOKEN": "hf_secret", "A": "two words"},
        }
    )
    arm = Arm(id="arm", method="ngram", k=2, settings={"prompt_lookup_max": 3})
    spec = VllmEngine(Target.model_validate("org/target"), config).launch(arm, 18123)
    assert spec.argv[:4] == ("ssh", "-tt", "-L", "18123:127.0.0.1:18123")
    assert "hf_secret" not in " ".join(spec.argv)
    # ssh joins its words with spaces and the remote shell splits them again.
    remote = shlex.split(" ".join(spec.argv[5:]))
    assert remote[:4] == ["env", "VLLM_NO_USAGE_STATS=1", "VLLM_SERVER_DEV_MODE=1", "A=two words"]
    assert remote[4:7] == ["vllm", "serve", "org/target"]
    assert json.loads(remote[remote.index("--speculative-config") + 1]) == {
        "method": "ngram",
        "num_speculative_tokens": 2,
        "prompt_lookup_max": 3,
    }
