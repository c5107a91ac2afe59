class CannotRun(Exception):
    """`parley run` cannot go on; the text tells the person at the console what is wrong and what to do."""
