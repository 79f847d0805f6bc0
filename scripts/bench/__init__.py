"""What the benchmark commands in scripts/ are made of; each folder serves the commands of its name.

- operators: bench_ops.py, profile_cpu.py; networks: bench_bnn.py; bwta: bench_bwta.py;
  models: bench_models.py; tuner: bench_tune_runs.py.
- tables: make_tables.py.
- show: load_cora.py, load_reddit.py.
- Shared by all: command (arguments, records), cases (what is compared), graphs,
  tasks and sampling (on what), ceilings and cuda_ceilings (what a machine can do), report (charts).
"""
