"""What `parley run` starts on one machine: Postgres, a small language model, the web app, and who looks after them."""
