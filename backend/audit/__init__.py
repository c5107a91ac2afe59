"""What was done, by whom and to whom, in a chain that shows whether somebody has changed it: see `service.py`."""
