"""What the experiments of the papers are made of; what each folder serves.

- images: train_images.py; text: train_text.py, bench_decoder.py; accuracy: reproduce_table3.py.
- training: what they share: the loop over epochs, runs that are kept, arguments, exit statuses.
- The files beside them are commands of their own, run as they are.
"""
