"""Parts of the benchmark commands in scripts/; each folder serves the commands of its name.

- operators: bench_ops.py, bench_layers.py; networks: bench_bnn.py;
  bwta: bench_bwta.py; models: bench_models.py, bench_default.py.
- tables: make_tables.py; charts: make_charts.py; show: load_cora.py, load_reddit.py.
- Shared by all: cases (what is compared, and its record), command (arguments and the loop over
  cases), graphs and tasks (on what), ceilings and cuda_ceilings (what a machine can do), kernels
  (of one call on a GPU), sampling (bench_sampling.py), report; bench_hamming.py is whole.
"""
