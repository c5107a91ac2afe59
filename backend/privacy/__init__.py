"""What belongs to a person as a whole: to take it along (`exporting.py`), and to have it gone (`erasing.py`)."""
