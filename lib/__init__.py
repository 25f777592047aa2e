"""The companion to Contrastive Hypothesis Retrieval: everything a notebook calls lives here.

Import the module that names what you need (``lib.datasets``, ``lib.search.contrast``, ...);
nothing is imported, read or configured by ``import lib`` itself, but how a command ends
(``python -m lib...``, ``python -c``; see ``lib.base.command``).
"""

import sys

# What is run is called so while it is looked up; with -c to its end, also a worker of the tests,
# which catches its output.
if sys.argv[:1] in (["-m"], ["-c"]) and sys.stdout is sys.__stdout__:
    from lib.base.command import set_up

    set_up()
