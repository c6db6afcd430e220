"""Applies one large batch in stages of many tasks, with the same effect as in one task.

    stage    distributed by    work
    read     landed files      read the keys; hash partition them
    fold     keys              net changes: the resulting rows, and the keys to look up
    take     table files       look up these keys; write before images and deletion vectors
    write    landed files      read the resulting rows; write data files and after images

All changes of a key are in one partition, in file and row order. Each file of the table is read by
one task, which writes its deletion vector. The first three stages are one chain of the runner, and
send each other keys and row numbers. The driver receives bitmaps of row numbers, and divides the
resulting rows among the tasks of the last stage. Rows are read only by the task that writes them.

A batch of few rows has two stages in one chain (`own_fold`): each task that takes has read and
folded all keys before, and each task that writes divides the resulting rows by itself.
"""
