"""`python -m mirrorlake` is the program `mirrorlake`."""

from mirrorlake.cli.main import run

if __name__ == "__main__":
    run()
