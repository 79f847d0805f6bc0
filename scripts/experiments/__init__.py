"""What the experiments of the papers are made of; what each folder serves.

- images: train_images.py; text: train_text.py, bench_decoder.py; accuracy: reproduce_table3.py.
- training: what they share, such as arguments, exit statuses, checkpoints.
- The files beside them are commands of their own, run as they are.
"""
