"""The companion to Contrastive Hypothesis Retrieval: everything a notebook calls lives here.

Import the module that names what you need (``lib.datasets``, ``lib.contrast``, ...); nothing is
imported, read or configured by ``import lib`` itself.
"""
