"""What was done, by whom and to whom: see `service.py`."""
