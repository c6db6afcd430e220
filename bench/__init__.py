"""Side by side with peers: the same data, in one run, with equal content asserted.

`python -m bench` runs everything, `--only load` one comparison. Each side runs with its own
documented settings, which the docstring of its file names. Ratios are what counts: seconds depend
on the machine.
"""

from mirrorlake.freed_memory import keep_freed_memory

keep_freed_memory()  # as the program does, before pyarrow is imported
