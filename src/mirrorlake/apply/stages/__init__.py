"""One large batch in stages of many tasks, with the same effect as in one task.

    read     by landed files   read the keys; hash partition them
    fold     by keys           net changes: which rows are left, which keys to look for
    take     by table files    find these keys; change images of their rows, deletion vectors
    write    by landed files   read the rows; data files of those that are left, and their images

The changes of a key meet in one partition, in file and row order, and each file of the table is
read by one task, which writes its deletion vector: nothing of the table is read twice. Between
stages go keys and row numbers: from read to fold by the runner's shuffle, to take and write by its
broadcast. Rows are read only where they are written.
"""
