"""The companion to Contrastive Hypothesis Retrieval: everything a notebook calls lives here.

Import the module that names what you need (``lib.data.questions``, ``lib.search.contrast``, ...);
nothing is imported, read or configured by ``import lib`` itself.
"""
