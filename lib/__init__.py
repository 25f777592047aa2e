"""The companion to Contrastive Hypothesis Retrieval: everything a notebook calls lives here.

Import the module that names what you need (``lib.datasets``, ``lib.search.contrast``, ...);
nothing is imported, read or configured by ``import lib`` itself, but how a command ends
(``python -m lib...``, ``python -c``; see ``lib.base.command``).
"""

import sys

# sys.argv[0] is "-m" while Python looks up the module, and stays "-c" under ``python -c``. Workers
# of the tests run under -c too, but replace sys.stdout.
if sys.argv[:1] in (["-m"], ["-c"]) and sys.stdout is sys.__stdout__:
    from lib.base.command import set_up

    set_up()
