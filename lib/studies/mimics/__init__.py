"""How good is the mimic? ``items`` measures, ``tables`` makes Tables 4 and 5 of it."""
