"""`make bench`: tensorwire and its rivals side by side, in one run.

timing      contenders race in interleaved rounds
ways        one way to serialize: how to write, how to read, proved before it is timed
rivals      the ways for dense tensors; `handmade` is the TensorProto written by hand
kinds       the ways for lists, strings and sparse tensors
stores      named tensors in bytes and files, from one small tensor to 1 GB; `rows` reads some of a table
records     TFRecord files: columns, records, numbers; `record_files` makes them, `record_rivals` are the others who read and write them
cases       what is measured, case by case
limits      memory copies, checksums, plain reads: how far each large case is from what the machine can do
targets     what we promised, met or missed
machine     which CPU, which versions
figures     how numbers are written
report      the words, the tables and the JSON; `page` makes the tables of docs/benchmarks.md from that JSON
"""
