"""The companion to Contrastive Hypothesis Retrieval: everything a notebook calls lives here.

Ten names are enough for work of your own: ``Corpus``, ``contrast``, ``evaluate``, ``explore``,
``load_encoder``, ``connect``, ``own_question``, ``read_qrels``, ``read_questions`` and
``write_hypotheses`` (docs/examples.md). Each is loaded from its module when it is first asked for.
``import lib`` itself imports, reads and configures nothing, but how a command ends (``python -m
lib...``, ``python -c``; see ``lib.base.command``). Whatever else you need, import its module.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lib.corpus import Corpus, contrast
    from lib.embed import load_encoder
    from lib.evaluation import evaluate
    from lib.explorer.own import own_question, write_hypotheses
    from lib.explorer.widget import explore
    from lib.forms import read_qrels, read_questions
    from lib.llm.connect import connect

_MODULE_OF = {
    "Corpus": "lib.corpus",
    "connect": "lib.llm.connect",
    "contrast": "lib.corpus",
    "evaluate": "lib.evaluation",
    "explore": "lib.explorer.widget",
    "load_encoder": "lib.embed",
    "own_question": "lib.explorer.own",
    "read_qrels": "lib.forms",
    "read_questions": "lib.forms",
    "write_hypotheses": "lib.explorer.own",
}
"""The names of the facade, and where each is defined."""


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'lib' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return [*_MODULE_OF, *globals()]


# sys.argv[0] is "-m" while Python looks up the module, and stays "-c" under ``python -c``. Workers
# of the tests run under -c too, but replace sys.stdout.
if sys.argv[:1] in (["-m"], ["-c"]) and sys.stdout is sys.__stdout__:
    from lib.base.command import set_up

    set_up()
