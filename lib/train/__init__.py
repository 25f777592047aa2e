"""Training, for whoever needs it: small LoRA adapters on a model that is already there.

``fit`` trains one, goes on where a killed run stopped, and writes the adapter with its card;
``batches`` says in what order examples come. What an adapter is for is said by the study that
trains it, as ``lib.studies.nli.adapters`` does. ``make train`` trains all that are shipped.
"""
