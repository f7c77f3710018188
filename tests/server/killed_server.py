"""A process that has a model loaded, and forks a server for each configuration it is told, which may be killed.

What is asked is the path of a configuration; what is told is a line of JSON: port and process of the server.
"""

import json
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import uvicorn

from knnmt.model.checkpoint import Model, load
from knnmt.server.app import create_team_app
from knnmt.server.config import read_config
from knnmt.server.listener import configured
from knnmt.server.model_pool import ModelPool
from knnmt.server.people import ANYONE

if TYPE_CHECKING:
    from ..forked import Forked


def begin(process: "Forked", config: Path) -> tuple[int, int]:
    """Start a server; gives its port, and its process to kill."""
    process.stdin.write(f"{config}\n")
    process.stdin.flush()
    told = json.loads(process.stdout.readline())
    return told["port"], told["pid"]


def serve(config: Path, bound: socket.socket, model: Model) -> None:
    app = create_team_app(read_config(config), config, ModelPool(load=lambda _: model))
    _ = app.state.server.desk(ANYONE).translator
    uvicorn.Server(configured(app)).run(sockets=[bound])


def main() -> None:
    torch.set_num_threads(1)  # a fork has no other threads
    model = load(sys.argv[1], langs="de-en", device="cpu")
    _ = model.fingerprint, model.tokenizer.fingerprint, model.tokenizer.encode_source(["Hund"])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    children: list[int] = []
    for line in sys.stdin:
        for child in children:
            os.waitpid(child, 0)  # it was killed
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.bind(("127.0.0.1", 0))
        bound.listen()  # whoever connects too early waits
        children = [os.fork()]
        if not children[0]:
            serve(Path(line.strip()), bound, model)
            os._exit(0)
        sys.stdout.write(json.dumps({"port": bound.getsockname()[1], "pid": children[0]}) + "\n")
        sys.stdout.flush()
        bound.close()


if __name__ == "__main__":
    main()
