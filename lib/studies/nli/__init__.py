"""Does one sentence contradict another? Models, their scores, and how good they are.

``models`` has the contract, NLI cross-encoders of the hub, and sentences; ``head`` is the small
model of our own for laptops; ``tools.train_contradiction`` trains it. ``scores`` asks a model about
many pairs and keeps what it says. ``labelled`` measures a model on labelled pairs.
"""
