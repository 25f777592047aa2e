"""The companion to Contrastive Hypothesis Retrieval: everything a notebook calls lives here.

Import the module that names what you need (``lib.data.questions``, ``lib.search.contrast``, ...);
nothing is imported, read or configured by ``import lib`` itself, but how a command ends
(``python -m lib...``; see ``lib.base.command``).
"""

import sys

if sys.argv[:1] in (["-m"], ["-c"]):  # as what is run is called while it is looked up
    from lib.base.command import set_up

    set_up()
